"""What RoFormerV2 and GAU leave out of a Transformer: options of every family.

GAU, Liu, section 4.1 (after Su, RoFormerV2): norms without parameters, projections without biases,
weights drawn from a truncated normal distribution.
"""

from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.errors import UsageError, flag_of

NORMS = ("layer", "unit")
INITS = ("usual", "truncated_normal")


@dataclass
class SimpleFlags:
    """Flags of norms, biases and initialisation."""

    norm: Optional[str] = field(
        default=None,
        metadata={
            "help": "layer: layer norm; unit: x / sqrt(mean(x²) + ε), without parameters, as in "
            "RoFormerV2 and GAU",
            "default": "layer",
        },
    )
    layer_norm_eps: Optional[float] = field(
        default=None, metadata={"help": "ε in every norm", "default": 1e-5}
    )
    no_bias: Optional[bool] = field(
        default=None, metadata={"help": "leave the bias out of every projection", "default": False}
    )
    init_weights: Optional[str] = field(
        default=None,
        metadata={
            "help": "usual: the family's own; truncated_normal: standard deviation 0.02, at most "
            "two of them from 0",
            "default": "usual",
        },
    )


class UnitNorm(nn.Module):
    """x / sqrt(mean(x²) + ε) over the channels, in float32 (GAU section 4.1); no parameters.

    Args:
        eps: ε.
    """

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalised channels of (…, C)."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).type_as(x)

    def extra_repr(self) -> str:
        """What ``print(model)`` says of this norm."""
        return f"eps={self.eps:g}"


def check_simple(cfg: Any) -> None:
    """Refuse unknown values of the flags.

    Raises:
        UsageError: naming the flag.
    """
    for name, known in (("norm", NORMS), ("init_weights", INITS)):
        if getattr(cfg, name) not in known:
            raise UsageError(f"{flag_of(name)} {getattr(cfg, name)}: must be {' or '.join(known)}")


def simplify(module: nn.Module, cfg: Any) -> None:
    """Give the norms and projections inside *module* the form that *cfg* asks for, in place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if hasattr(child, "normalized_shape"):
                child.eps = cfg.layer_norm_eps
                if cfg.norm == "unit":
                    setattr(parent, name, UnitNorm(cfg.layer_norm_eps))
            elif cfg.no_bias and hasattr(child, "in_features"):
                child.register_parameter("bias", None)


@torch.no_grad()
def initialise(module: nn.Module, cfg: Any) -> None:
    """Draw the weights of projections and embeddings as *cfg* asks for, in place."""
    if cfg.init_weights != "truncated_normal":
        return
    child: Any
    for child in module.modules():
        if hasattr(child, "in_features") or hasattr(child, "num_embeddings"):
            nn.init.trunc_normal_(child.weight, std=0.02, a=-0.04, b=0.04)
            if getattr(child, "padding_idx", None) is not None:
                child.weight[child.padding_idx] = 0.0
