"""``--compile-layers``: PyTorch compiles each layer.

Lengths are symbols in the graphs, so that another batch or a further token of a translation needs
no new compilation.  Branches on data, such as whether there is padding, are outside the layers, in
stacks.  Parameters and their names do not change.
"""

import logging
import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Dict, Optional

import torch
from torch import nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.versions import TORCH_VERSION
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting

FLAG = "--compile-layers"
#: Arguments of ``torch.compile``.
ARGUMENTS: Dict[str, Any] = {"dynamic": True}
#: Graphs of all layers together.  A decoder layer has one for training, one for evaluation and up
#: to three for generation: for the first token, the second, whose cache has size 1, and the others.
MOST_GRAPHS = 256
logger = logging.getLogger(__name__)


@dataclass
class CompileFlags:
    """The flag that compiles the layers."""

    compile_layers: Optional[bool] = setting(
        False,
        "compile every layer with torch.compile, in training and generation; needs PyTorch 2.4 and "
        "a C++ compiler",
        role="free",
    )


def obstacle() -> Optional[str]:
    """Why this machine cannot compile layers, or None if it can."""
    if TORCH_VERSION < (2, 4):
        return f"needs PyTorch 2.4 or newer, and this is {torch.__version__}"
    names = [os.environ.get("CXX"), "c++", "g++", "clang++", "cl"]
    if not any(shutil.which(name) for name in names if name):
        return "needs a C++ compiler, and none is in PATH or CXX; install g++"
    return None


def check_compiled(cfg: Options) -> None:
    """Refuse ``--compile-layers`` where it cannot work.

    Args:
        cfg: flat configuration.

    Raises:
        UsageError: naming the flag and the reason.
    """
    if not option(cfg, "compile_layers"):
        return
    reason = obstacle()
    if reason is not None:
        raise UsageError(f"{FLAG}: {reason}; or drop the flag")
    if option(cfg, "checkpoint_activations") or option(cfg, "offload_activations"):
        raise UsageError(
            f"{FLAG}: cannot be combined with --checkpoint-activations, whose second forward pass "
            "is outside of the graph; drop one of the two"
        )


def compile_layer(layer: nn.Module, wrapped: nn.Module, cfg: Options) -> nn.Module:
    """*wrapped*, compiled at its first calls if ``--compile-layers`` is given.

    A checkpoint of compiled layers also loads where they cannot be compiled: with a warning.

    Args:
        layer: the layer, not wrapped.
        wrapped: the same layer, or a unit of FSDP.
        cfg: fairseq's nested Transformer configuration.

    Raises:
        UsageError: the layer is a unit of FSDP.
    """
    if not option(cfg, "compile_layers", False):
        return wrapped
    if wrapped is not layer:
        raise UsageError(
            f"{FLAG}: cannot be combined with --ddp-backend fully_sharded, which replaces a "
            "layer's parameters at every step; drop one of the two"
        )
    reason = obstacle()
    if reason is not None:
        _warn(reason)
        return layer
    import torch._dynamo

    config: Any = torch._dynamo.config  # its limits count the graphs of all layers together
    for name in ("cache_size_limit", "accumulated_cache_size_limit"):
        setattr(config, name, max(getattr(config, name), MOST_GRAPHS))
    layer.compile(**ARGUMENTS)
    return layer


@lru_cache(maxsize=None)  # once per run
def _warn(reason: str) -> None:
    logger.warning("%s: %s; the layers are not compiled", FLAG, reason)
