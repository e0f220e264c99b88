"""``--compile-layers``: PyTorch compiles each layer.

Lengths are symbolic in the compiled graphs, so a batch of other lengths or a further token needs no
new compilation.  Branches that depend on data, such as on whether there is padding, are in the
stacks and not in the layers.  Parameters and their names do not change.
"""

import logging
import os
import shutil
from dataclasses import dataclass
from typing import Any, Dict, Optional

import torch
from fairseq.distributed import FullyShardedDataParallel
from torch import nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.versions import TORCH_VERSION
from fairseq_posenc.configuration.features import Completed
from fairseq_posenc.flags.options import Layer, Options, option
from fairseq_posenc.flags.settings import SAME, setting

FLAG = "--compile-layers"
#: Arguments of ``torch.compile``.
ARGUMENTS: Dict[str, Any] = {"dynamic": True}
#: Limit on the graphs of all layers together.  A decoder layer has one graph for training, one for
#: evaluation and up to three for generation: for the first, the second and all further tokens.
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
        exported=SAME,
    )


def obstacle() -> Optional[str]:
    """Why this machine cannot compile layers, or None if it can."""
    if TORCH_VERSION < (2, 4):
        return f"needs PyTorch 2.4 or newer, and this is {torch.__version__}; upgrade PyTorch"
    names = [os.environ.get("CXX"), "c++", "g++", "clang++", "cl"]
    if not any(shutil.which(name) for name in names if name):
        return "needs a C++ compiler, and none is in PATH or CXX; install g++"
    return None


def check_compiled(completed: Completed) -> None:
    """Refuse ``--compile-layers`` where it cannot work.

    A checkpoint that was trained with the flag also loads on a machine that cannot compile layers.
    """
    cfg = completed.cfg
    if not option(cfg, "compile_layers"):
        return
    reason = obstacle() if completed.fresh else None
    if reason is not None:
        raise UsageError(f"{FLAG}: {reason}, or drop the flag")
    if option(cfg, "checkpoint_activations") or option(cfg, "offload_activations"):
        raise UsageError(
            f"{FLAG}: cannot be combined with --checkpoint-activations, whose second forward pass "
            "is outside of the graph; drop one of the two"
        )


def compile_layers(model: Layer, cfg: Options) -> None:
    """Set up the layers of a new model so that PyTorch compiles each at its first call.

    Raises:
        UsageError: the layers are sharded by FSDP.
    """
    if not option(cfg, "compile_layers"):
        return
    reason = obstacle()
    if reason is not None:
        logger.warning("%s: %s; the layers are not compiled", FLAG, reason)
        return
    import torch._dynamo

    config: Any = torch._dynamo.config  # its limits count the graphs of all layers together
    for name in ("cache_size_limit", "accumulated_cache_size_limit"):
        setattr(config, name, max(getattr(config, name), MOST_GRAPHS))
    for module in model.modules():
        if hasattr(module, "compiled"):
            module.compiled = True
        layers = getattr(module, "layers", None)
        for layer in layers.children() if isinstance(layers, nn.ModuleList) else ():
            if isinstance(layer, FullyShardedDataParallel):
                raise UsageError(
                    f"{FLAG}: cannot be combined with --ddp-backend fully_sharded, which replaces "
                    "a layer's parameters at every step; drop one of the two"
                )
            layer.compile(**ARGUMENTS)
