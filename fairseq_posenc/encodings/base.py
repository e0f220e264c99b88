"""Interfaces of position encodings: properties of a stack, and hooks through which they act.

Letters used for shapes throughout the package: B batch, T query length, S key length, H heads,
D size of one head, C channels.

======================================  ==========================  =======================
hook                                    examples                    computed
======================================  ==========================  =======================
:class:`InputTable`                     sinusoidal, learned         once per forward
:class:`QKVTransform`                   rotary, BERT-A^d            table once per forward,
                                                                    applied in every layer
:class:`SharedBias`                     TUPE, T5 bias, ALiBi        once per forward
:class:`ContentBias`                    Shaw, Transformer-XL,       in every layer
                                        DeBERTa
:class:`DistanceVectors`                Transformer-XL, DeBERTa     once per forward
======================================  ==========================  =======================

The last two hooks are in content.py.  Nothing here depends on fairseq: encodings get positions,
queries and keys, but no model.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.versions import in_graph
from fairseq_posenc.encodings.distance import toeplitz
from fairseq_posenc.flags.options import Options


class Places(NamedTuple):
    """Positions of the queries and of the keys, in tokens."""

    queries: Tensor  # (1|B, T), int64
    keys: Tensor  # (1|B, S), int64
    bound: int  # a Python number above every distance between two positions
    # True if queries are the last T of S tokens and distances are differences of indices.
    # Encodings that depend on distances alone then need no positions
    by_index: bool = False

    @property
    def distances(self) -> Optional[Tensor]:
        """Distances, key minus query, (1|B, T, S); None if they are differences of indices."""
        return None if self.by_index else self.keys.unsqueeze(1) - self.queries.unsqueeze(2)


@dataclass(frozen=True)
class Stack:
    """Properties of an encoder or decoder that its position encodings depend on."""

    side: str  # ``"encoder"`` or ``"decoder"``, used in messages and flag names
    num_heads: int  # H
    head_dim: int  # D; the number of features per head where linear attention rotates features
    causal: bool  # whether queries see no later keys
    max_positions: int  # longest sequence the stack accepts, in tokens
    has_cls: bool = False  # whether its input starts with a [CLS] token
    # whether products of rotated q and k depend on the distance alone; false if a feature map is
    # applied after the rotation
    relative_after_rotation: bool = True
    size_flags: str = "a different number of heads"  # for messages: flags that set *head_dim*
    channels: Optional[int] = None  # C, the size of the layers' input, if it is not H·D

    @property
    def width(self) -> int:
        """C, the size of the layers' input."""
        return self.channels or self.num_heads * self.head_dim

    def refuse_odd_heads(self, name: str) -> None:
        """Refuse an odd D, which the encoding *name* does not support."""
        if self.head_dim % 2:
            raise UsageError(
                f"--position-encoding {name}: works on pairs of channels, but the head size "
                f"{self.head_dim} of the {self.side} is odd; make it even with {self.size_flags}"
            )


class Hook:
    """Base of the classes through which an encoding acts on a model."""

    #: name of the hook: ``input``, ``transform``, ``shared`` or ``content``
    hook: str
    #: True if the class accepts positions other than 0, 1, 2, …
    takes_positions = False

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__()

    @classmethod
    def shifts_freely(cls, options: Options) -> bool:
        """Whether a relative encoding of this class stays relative with these *options*."""
        return True

    @classmethod
    def check(cls, options: Options, stack: Stack) -> None:
        """Refuse options for which the class cannot be constructed; nothing is constructed."""

    def check_shape(self, method: str, result: Tensor, letters: str, *shape: int) -> None:
        """Refuse a result of *method* whose shape is not *shape*; *letters* describe the shape."""
        if not in_graph() and result.shape != shape:
            raise UsageError(
                f"{type(self).__module__}.{type(self).__name__}.{method}: returned logits of shape "
                f"{tuple(result.shape)}; the shape must be {letters}, here {shape}"
            )


def init_normal(*modules: Any) -> None:
    """Initialise tables and projections as in BERT: weights from N(0, 0.02²), biases zero."""
    for module in modules:
        if module is not None:
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)


class InputTable(Hook):
    """Vectors added to the embeddings, from one of the tables of fairseq's ``embed_positions``."""

    hook = "input"
    takes_positions = True
    #: learned, sinusoidal, or None for no vectors at all
    table: Optional[str] = None


class Rotation(NamedTuple):
    """The rotation of queries and keys in one layer (RoFormer Eq. 4), for exports."""

    # angle of each pair of the first d channels of a head, in radians per position, (d/2,),
    # float64
    frequencies: Tensor
    base: float  # base of the unscaled frequencies, base^(-2(i-1)/d)
    pairing: str  # ``interleaved``, (1, 2), (3, 4), …; or ``half``, (i, i + d/2)
    temperature: float = 1.0  # factor on the rotated channels of queries and of keys


class QKVTransform(Hook, nn.Module):
    """A position-dependent transform of queries, keys and optionally values.

    All layers of a stack share one instance; the stack owns its parameters, if any.
    """

    hook = "transform"
    takes_positions = True
    #: True for a linear map of single vectors, which linear attention can apply to features
    applies_to_features = False
    #: True if the transform is different for each head, so that heads cannot share keys
    differs_by_head = False
    #: the number of positions beyond which :meth:`exceeded` is called
    reach: float = math.inf

    @classmethod
    def check_features(cls, options: Options) -> Optional[str]:
        """For messages: the flag that rules out transformed features, and why, or None."""
        return None

    @classmethod
    def changes_values(cls, options: Options) -> Optional[str]:
        """The flag that makes the class transform values as well, if it is on; else None.

        If values are transformed, a shift of all positions changes the outputs.
        """
        return None

    def exceeded(self, length: int) -> None:
        """Called before a forward pass with *length* positions, above :attr:`reach`; may warn."""

    def variant(self, layer: int) -> Any:
        """The identifier of the table of *layer*; layers with equal identifiers share a table."""
        return None

    def rotation(self, layer: int) -> Optional[Rotation]:
        """The rotation in *layer*, or None if the transform is no rotation."""
        return None

    def without_content(self, positions: Tensor) -> Optional[Tensor]:
        """q·k of transformed zero vectors at *positions* (1|B, T): (1|B, H, T, T); None if 0."""
        return None

    def table(self, positions: Tensor, layer: int = 0) -> Tensor:
        """The argument *table* of :meth:`forward`, for *positions* (1|B, T).

        Once per forward pass, it is computed for all layers with the same :meth:`variant`.
        """
        raise NotImplementedError

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Transformed queries, keys and values (B, T, H, D), with shape and dtype unchanged."""
        raise NotImplementedError

    def rotate(self, x: Tensor, table: Tensor) -> Tensor:
        """Transformed features of queries or keys, (B, T, H, M), for linear attention."""
        return self(x, x, x, table)[0]


class SharedBias(Hook, nn.Module):
    """Content-free logits, shared by all layers of a stack and owned by the stack."""

    hook = "shared"
    takes_positions = True
    #: True if the logits are a function of the distance alone
    distance_alone = False

    def forward(self, places: Places) -> Tensor:
        """Logits (1|B, 1|H, T, S) of queries and keys at *places*, added to the scaled q·k."""
        raise NotImplementedError

    def cls_logits(self) -> Optional[Tensor]:
        """θ1 and θ2 of TUPE Eq. 9, (2, H), if the encoding computes them, else None."""
        return None


class DistanceBias(SharedBias):
    """Content-free logits that are a function of the distance alone."""

    distance_alone = True
    #: the distance from which on all distances of the same sign have the same logit, or None
    constant_from: Optional[int] = None

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.num_heads = stack.num_heads

    def by_distance(self, distances: Tensor) -> Tensor:
        """Logits (H, N) of *distances* (N), int64, key minus query, in tokens."""
        raise NotImplementedError

    def logits_by_distance(self, distances: Tensor) -> Tensor:
        """Call :meth:`by_distance`, and check the shape of its result."""
        logits = self.by_distance(distances)
        self.check_shape("by_distance", logits, "(H, N)", self.num_heads, distances.size(0))
        return logits

    def forward(self, places: Places) -> Tensor:
        """Logits (1|B, H, T, S).

        If distances are differences of indices, all sequences share them, whatever their padding,
        and logits are computed for the S + T - 1 distances of a sequence.  Otherwise, logits are
        computed per pair of query and key, or per distance below the bound if these are fewer.
        """
        distances = places.distances
        if distances is None:
            queries, keys = places.queries.size(1), places.keys.size(1)
            distances = torch.arange(1 - keys, queries, device=places.keys.device)
            return toeplitz(self.logits_by_distance(distances), keys).unsqueeze(0)
        if distances.numel() < 2 * places.bound:
            logits = self.logits_by_distance(distances.flatten()).contiguous()
        else:
            last = places.bound - 1
            every = torch.arange(-last, places.bound, device=distances.device)
            rows = (distances + last).clamp(0, 2 * last)
            logits = self.logits_by_distance(every).index_select(1, rows.flatten())
        return logits.view(-1, *distances.shape).transpose(0, 1)  # (H, B, T, S) -> (B, H, T, S)
