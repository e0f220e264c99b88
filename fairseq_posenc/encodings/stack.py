"""Properties of an encoder or decoder, and the base of all classes of encodings."""

from dataclasses import dataclass
from typing import Any, Optional

from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.versions import in_graph
from fairseq_posenc.flags.options import Options


@dataclass(frozen=True)
class Stack:
    """Properties of an encoder or decoder that its position encodings depend on."""

    side: str  # ``"encoder"`` or ``"decoder"``, used in messages and flag names
    num_heads: int  # H
    head_dim: int  # D; the number of features per head where linear attention rotates features
    causal: bool  # whether queries see no later keys
    max_positions: int  # longest sequence the stack accepts, in tokens
    has_cls: bool = False  # whether its input starts with a [CLS] token
    # whether rotating q and k keeps the product a function of distance; false if a feature map is
    # applied after the rotation
    relative_after_rotation: bool = True
    size_flags: str = "the number of heads"  # the flags that set *head_dim*, for error messages
    channels: Optional[int] = None  # C, the size of the layers' input, if it is not H·D

    @property
    def width(self) -> int:
        """C, the size of the layers' input."""
        return self.channels or self.num_heads * self.head_dim

    def refuse_odd_heads(self, name: str) -> None:
        """Refuse an odd D, for the encoding *name*."""
        if self.head_dim % 2:
            raise UsageError(
                f"--position-encoding {name}: works on pairs of channels, and the head size "
                f"{self.head_dim} of the {self.side} is odd; make it even by {self.size_flags}"
            )


class Hook:
    """Base of the classes through which an encoding acts on a model."""

    #: where the class acts: input, transform, shared, content or distances
    hook: str
    #: True if the class accepts positions other than 0, 1, 2, …
    takes_positions = False

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__()

    @classmethod
    def shifts_freely(cls, options: Options) -> bool:
        """Whether a relative encoding of this class stays relative under these flags."""
        return True

    @classmethod
    def check(cls, options: Options, stack: Stack) -> None:
        """Refuse options for which the class cannot be constructed; nothing is constructed."""

    def check_shape(self, method: str, result: Tensor, letters: str, *shape: int) -> None:
        """Refuse a result of *method* that has another shape than *shape*, written in *letters*."""
        if not in_graph() and result.shape != shape:
            raise UsageError(
                f"{type(self).__module__}.{type(self).__name__}.{method}: returned the shape "
                f"{tuple(result.shape)}; the shape of its logits is {letters}, here {shape}"
            )


def init_normal(*modules: Any) -> None:
    """Draw the first weights of tables and projections as in BERT, N(0, 0.02²), and no biases."""
    for module in modules:
        if module is not None:
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)
