"""Adapted models written as whole ones, with the matrices merged into their projections."""

from typing import Any, Dict, Optional

from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import check_writable, refuse_own_source
from fairseq_posenc.checkpoints.loader import load
from fairseq_posenc.checkpoints.reading import read_checkpoint, write_checkpoint
from fairseq_posenc.packs.low_rank.models import DIGEST, PARTS, LowRankLinear


def merge_file(path: str, out: str, base: Optional[str], data: Optional[str]) -> None:
    """Write a checkpoint without low-rank matrices that computes the same as an adapted one.

    Args:
        base: the base of *path*, if that is no longer where it was.
        data: its data, if they are no longer where they were.

    Raises:
        UsageError: the checkpoint has no low-rank matrices, a file is missing or another one, or
            *out* is one of the files.
    """
    check_writable(out)
    state = read_checkpoint(path)
    if DIGEST not in state["model"]:
        raise UsageError(f"{path}: has no low-rank matrices; it needs no merging")
    moved = {"lora_base": base, "data": data}
    loaded = load(path, overrides={name: value for name, value in moved.items() if value})
    model: nn.Module = loaded.model
    refuse_own_source(out, path, loaded.settings["lora_base"])
    whole: Dict[str, Tensor] = dict(nn.Module.state_dict(model))  # those of the base included
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, LowRankLinear):
            whole[f"{name}.weight"] = module.merged()
    left = (*PARTS, DIGEST)
    settings: Any = (state.get("cfg") or {}).get("model") or state["args"]
    settings = settings if isinstance(settings, dict) else vars(settings)
    settings.update(lora_rank=0, lora_base=None)
    state.update(
        model={name: x for name, x in whole.items() if not name.endswith(left)},
        last_optimizer_state=None,
    )
    write_checkpoint(state, out)
