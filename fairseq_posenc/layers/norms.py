"""``--norm``: normalisation layers by name.

fairseq builds its layers with layer norms.  :func:`apply_norms` replaces them afterwards, which
keeps fairseq's parameter names.
"""

from dataclasses import dataclass
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.basics.versions import HAS_FUSED_RMS_NORM
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.registry import ClassRegistry
from fairseq_posenc.flags.settings import setting

NORMS = ClassRegistry("--norm", "norms")
#: Decorates a module class that is built from the number of channels and the configuration.
register_norm = NORMS.register


@dataclass
class NormFlags:
    """Flags of norms."""

    norm: Optional[str] = setting(
        "layer",
        "norm of every layer: {choices}; rms has no parameters, as in RoFormerV2 and GAU",
        choices=NORMS,
    )
    layer_norm_eps: Optional[float] = setting(
        1e-5,
        "ε in every norm",
        at_least=torch.finfo(torch.float32).tiny,  # without ε, masked positions are 0/0
        at_most=1.0,
    )


@register_norm("layer", paper="Ba et al. 2016, arXiv 1607.06450", summary="layer norm")
class LayerNorm(nn.LayerNorm):
    """(x - mean) / sqrt(variance + ε) · gain + bias; fairseq's modules are kept, with this ε."""

    def __init__(self, channels: int, options: Options) -> None:
        super().__init__(channels, eps=options.layer_norm_eps)


@register_norm(
    "rms", paper="Zhang and Sennrich 2019, arXiv 1910.07467", summary="x / sqrt(mean(x²) + ε)"
)
class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + ε) over the channels (Zhang and Sennrich, Eq. 4), in float32.

    This norm has no gain and hence no parameters, as in GAU, section 4.1.

    >>> from argparse import Namespace
    >>> norm = RMSNorm(4, Namespace(layer_norm_eps=0.0))
    >>> norm(torch.tensor([1.0, -1.0, 3.0, 5.0]))  # mean square 9
    tensor([ 0.3333, -0.3333,  1.0000,  1.6667])
    """

    def __init__(self, channels: int, options: Options) -> None:
        super().__init__()
        self.eps = float(options.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised channels of (…, C)."""
        if HAS_FUSED_RMS_NORM:
            return F.rms_norm(x, x.shape[-1:], eps=self.eps)
        wide = x.to(AT_LEAST_FLOAT32[x.dtype])
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).type_as(x)

    def extra_repr(self) -> str:
        return f"eps={self.eps:g}"


def apply_norms(module: nn.Module, options: Options) -> None:
    """Replace the layer norms inside *module* by the norm that *options* select, in place."""
    chosen = NORMS.find(options.norm).thing
    child: Any
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            # fairseq's, apex's or PyTorch's layer norm; a shared one is replaced only once
            if not hasattr(child, "normalized_shape") or type(child) is chosen:
                continue
            if chosen is LayerNorm:
                child.eps = options.layer_norm_eps
            else:
                setattr(parent, name, chosen(child.normalized_shape[-1], options))
