"""The parameters of layers: projections without biases, initial values, and shared layers.

RoFormerV2 (Su) has no biases (GAU, Liu, section 5.1), and its released model was initialised from a
truncated normal distribution.  ALBERT, Lan et al. 2020, arXiv 1909.11942, section 3.1 and Table 4,
shares layers.  Every model family has flags for these three choices.
"""

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Tuple

import torch
from torch import nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.layers.norms import apply_norms


def in_attention(name: str) -> bool:
    """True if the parameter *name* of a layer belongs to an attention or its layer norm."""
    return "attn" in name.split(".")[0].split("_")


#: For each value of ``--share-layers``: a test of whether the parameter with this name is shared.
SHARED: Dict[str, Callable[[str], bool]] = {
    "none": lambda name: False,
    "all": lambda name: True,
    "attention": in_attention,
    "feed_forward": lambda name: not in_attention(name),
}


@dataclass
class ParameterFlags:
    """Flags of biases, initial weights and shared layers."""

    no_bias: Optional[bool] = setting(
        False,
        "leave the bias out of every projection, except in heads that classify texts or tokens",
    )
    init_weights: Optional[str] = setting(
        "default",
        "default: as in the model family; truncated_normal: standard deviation 0.02, truncated "
        "at two standard deviations",
        role="training",
        choices=("default", "truncated_normal"),
    )
    share_layers: Optional[str] = setting(
        "none",
        "parameters that all layers of a stack share, as in ALBERT: {choices}",
        choices=SHARED,
    )


def apply_norms_and_biases(module: nn.Module, options: Options) -> None:
    """Apply ``--norm`` and ``--no-bias`` to everything inside *module*, in place."""
    apply_norms(module, options)
    for child in module.modules() if options.no_bias else ():
        if hasattr(child, "in_features"):  # a projection
            child.register_parameter("bias", None)


@torch.no_grad()
def initialise(module: nn.Module, options: Options) -> None:
    """Initialise projections and embeddings as ``--init-weights`` selects, in place."""
    if options.init_weights != "truncated_normal":
        return
    child: Any
    for child in module.modules():
        if hasattr(child, "in_features") or hasattr(child, "num_embeddings"):
            nn.init.trunc_normal_(child.weight, std=0.02, a=-0.04, b=0.04)
            if getattr(child, "padding_idx", None) is not None:
                child.weight[child.padding_idx] = 0.0


def _named_parameters(layer: nn.Module) -> Iterator[Tuple[str, nn.Parameter]]:
    """All parameters with their names; a tied parameter has several names."""
    for path, module in layer.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield f"{path}.{name}".lstrip("."), parameter


def share_layers(layers: Iterable[nn.Module], options: Options) -> None:
    """Let all layers use the first layer's parameters that ``--share-layers`` selects, in place.

    Each layer keeps a separate cache and separate random features.

    Raises:
        UsageError: only a part of gated units would be shared, or the layers' parameters differ.
    """
    value = option(options, "share_layers") or "none"
    if value == "none":
        return
    shared = SHARED[value]
    if value in ("attention", "feed_forward") and option(options, "layer") == "gated":
        raise UsageError(
            f"--share-layers {value}: gated units can only be shared as a whole; give all or none"
        )
    first: Optional[Dict[str, nn.Parameter]] = None
    for layer in layers:
        parameters = {name: value for name, value in _named_parameters(layer) if shared(name)}
        if first is None:
            first = parameters
            continue
        if {n: p.shape for n, p in parameters.items()} != {n: p.shape for n, p in first.items()}:
            if option(options, "skip_first_norm"):
                raise UsageError(
                    f"--share-layers {value}: under --skip-first-norm the first layer lacks a norm "
                    "that the other layers have; drop one of the two flags"
                )
            raise UsageError(
                f"--share-layers {value}: the layers have different parameters under "
                f"--position-encoding {option(options, 'position_encoding')}; give one encoding "
                "for all layers"
            )
        modules = dict(layer.named_modules())
        for name, parameter in first.items():
            path, _, attribute = name.rpartition(".")
            modules[path]._parameters[attribute] = parameter
