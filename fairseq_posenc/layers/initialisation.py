"""Projections without biases and weight initialisation, as in RoFormerV2 and GAU.

GAU, Liu, section 4.1 (after Su, RoFormerV2): no biases, and weights drawn from a truncated normal
distribution.  Both are options of every model family.
"""

from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import nn

from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.layers.norms import apply_norms

INITS = ("default", "truncated_normal")


@dataclass
class InitialisationFlags:
    """Flags of biases and initial weights."""

    no_bias: Optional[bool] = setting(False, "leave the bias out of every projection", role="model")
    init_weights: Optional[str] = setting(
        "default",
        "default: that of the model family; truncated_normal: standard deviation 0.02, truncated "
        "at two standard deviations",
        role="training",
        choices=INITS,
        former_values={"usual": "default"},
    )


def remove_biases(module: nn.Module, options: Options) -> None:
    """Remove the bias of every projection inside *module*, in place, if ``no_bias`` is set."""
    if not options.no_bias:
        return
    for child in module.modules():
        if hasattr(child, "in_features"):
            child.register_parameter("bias", None)


def apply_norms_and_biases(module: nn.Module, options: Options) -> None:
    """Apply ``--norm`` and ``--no-bias`` to everything inside *module*, in place."""
    apply_norms(module, options)
    remove_biases(module, options)


@torch.no_grad()
def initialise(module: nn.Module, options: Options) -> None:
    """Initialise projections and embeddings as ``init_weights`` selects, in place."""
    if options.init_weights != "truncated_normal":
        return
    child: Any
    for child in module.modules():
        if hasattr(child, "in_features") or hasattr(child, "num_embeddings"):
            nn.init.trunc_normal_(child.weight, std=0.02, a=-0.04, b=0.04)
            if getattr(child, "padding_idx", None) is not None:
                child.weight[child.padding_idx] = 0.0
