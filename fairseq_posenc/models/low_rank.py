"""Models of which only low-rank matrices are trained (:mod:`fairseq_posenc.layers.low_rank`).

The parameters W₀ of Hu et al. 2021, arXiv 2106.09685, section 4.1, are read from ``--lora-base``
and not trained.  What the base lacks, such as a classification head or the table of another
position encoding, is trained as usual.  Checkpoints hold the trained part alone, with a digest of
the base.
"""

import hashlib
import os
from typing import Any, Dict, FrozenSet, Mapping, Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import check_writable, refuse_own_source
from fairseq_posenc.checkpoints.loader import load
from fairseq_posenc.checkpoints.reading import (
    DIGEST,
    read_checkpoint,
    refuse_adapted,
    write_checkpoint,
)
from fairseq_posenc.flags.options import SIDES, Layer, Options, option
from fairseq_posenc.layers.low_rank import LowRankLinear

_PARTS = (".lora_A", ".lora_B")


class LowRankModel:
    """Mixin of models that can be adapted; it comes before fairseq's class."""

    #: the base, and names of the parameters and buffers that are read from that file
    base_file = ""
    base_names: FrozenSet[str] = frozenset()

    def state_dict(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """The state; an adapted model leaves out what its base has."""
        state = super().state_dict(*args, **kwargs)  # type: ignore[misc]  # fairseq's
        for name in self.base_names:
            state.pop(name, None)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load a state; an adapted model has the rest from its base.

        Raises:
            UsageError: the state was trained with another base.
        """
        if self.base_names:
            own = super().state_dict()  # type: ignore[misc]
            digest = state_dict.get(DIGEST)
            if digest is not None and not torch.equal(digest.cpu().float(), own[DIGEST].cpu()):
                raise UsageError(
                    f"--lora-base {self.base_file}: the checkpoint was trained with another base; "
                    "give that one"
                )
            state_dict = {**own, **state_dict}
        return super().load_state_dict(state_dict, *args, **kwargs)  # type: ignore[misc]


def add_low_rank(model: Layer, cfg: Options) -> None:
    """Adapt a model that was just built, in place, as ``--lora-rank`` says.

    Args:
        model: a :class:`LowRankModel`.
        cfg: its configuration, complete.

    Raises:
        UsageError: the base is missing or another model, or no projection has one of the names.
    """
    rank = int(option(cfg, "lora_rank") or 0)
    if not rank:
        return
    base = _read_base(option(cfg, "lora_base"), rank)
    _check(cfg, rank)
    try:
        model.load_state_dict(dict(base))
    except RuntimeError as error:
        raise UsageError(
            f"--lora-base {cfg.lora_base}: its parameters are not those of this model "
            f"({str(error).splitlines()[-1].strip()}); give the settings that it was trained with"
        ) from error
    names = frozenset(model.state_dict()) & frozenset(base)
    chosen = [name.strip() for name in str(cfg.lora_layers).split(",")]
    found = set()
    for place, parent in list(model.named_modules()):
        for child in list(parent.children()):
            same = [other for other, module in parent._modules.items() if module is child]
            paths = [f".{place}.{each}" for each in same]
            named = {end for end in chosen if any(path.endswith(f".{end}") for path in paths)}
            if named and type(child) is nn.Linear:
                layer = LowRankLinear(child, rank, float(cfg.lora_alpha))
                for each in same:  # Reformer's queries and keys are one projection
                    setattr(parent, each, layer)
                found |= named
    absent = [name for name in chosen if name not in found]
    if absent:
        known = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if _plain(m)})
        raise UsageError(
            f"--lora-layers {cfg.lora_layers}: no projection is named {absent[0]!r}; there are "
            f"{', '.join(known)}"
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in names)
    model.register_buffer(DIGEST, _digest(base))
    model.base_names, model.base_file = names, cfg.lora_base


def refuse_low_rank(cfg: Options, what: str) -> None:
    """Refuse ``--lora-rank`` for models that cannot be adapted.

    Args:
        what: the models, for the message.
    """
    if option(cfg, "lora_rank"):
        raise UsageError(f"--lora-rank {cfg.lora_rank}: {what} cannot be adapted; drop the flag")


def _plain(module: nn.Module) -> bool:
    return type(module) in (nn.Linear, LowRankLinear)


def _read_base(path: Optional[str], rank: int) -> Dict[str, Tensor]:
    if path is None:
        raise UsageError(f"--lora-rank {rank}: also give --lora-base, the checkpoint to adapt")
    if not os.path.isfile(path):
        raise UsageError(
            f"--lora-base {path}: no such file; give the checkpoint that is adapted (for a model "
            "that is loaded: --model-overrides \"{'lora_base': 'FILE'}\")"
        )
    state: Dict[str, Tensor] = read_checkpoint(path)["model"]
    refuse_adapted(f"--lora-base {path}", state)
    return state


def _check(cfg: Options, rank: int) -> None:
    """Refuse flags under which the base would not fit, or hooks of frozen layers be lost."""
    kept = [f"{side}_layers_to_keep" for side in SIDES]  # the base is read as a whole
    for name in ("quant_noise_pq", "quant_noise_scalar", "share_layers", *kept):
        value = option(cfg, name)
        if value not in (None, False, 0, 0.0, "none"):
            raise UsageError(
                f"--lora-rank {rank}: does not go with --{name.replace('_', '-')} {value}; drop "
                "one of the two"
            )


def _digest(state: Mapping[str, Tensor]) -> Tensor:
    """A digest of all parameters, as :data:`DIGEST` describes."""
    found = hashlib.sha256()
    for name in sorted(state):
        x = state[name].detach().cpu().contiguous()
        found.update(name.encode())
        found.update(x.view(torch.uint8).numpy().tobytes() if x.dim() else str(x.item()).encode())
    both = torch.tensor(list(found.digest()), dtype=torch.float32).view(16, 2)
    return both[:, 0] * 256 + both[:, 1]


def merge_file(path: str, out: str, base: Optional[str], data: Optional[str]) -> None:
    """Write a checkpoint without low-rank matrices that computes the same as an adapted one.

    Args:
        path: the checkpoint.
        out: the file to write.
        base: its base, if that is no longer where it was.
        data: its data, if they are no longer where they were.

    Raises:
        UsageError: the checkpoint has no low-rank matrices, a file is missing or another one, or
            *out* is one of the files.
    """
    check_writable(out)
    state = read_checkpoint(path)
    if DIGEST not in state["model"]:
        raise UsageError(f"{path}: has no low-rank matrices; it needs no merging")
    given = {"lora_base": base, "data": data}
    loaded = load(path, overrides={name: value for name, value in given.items() if value})
    model: nn.Module = loaded.model
    refuse_own_source(out, path, loaded.model.base_file)
    whole: Dict[str, Tensor] = dict(nn.Module.state_dict(model))  # with the base
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, LowRankLinear):
            whole[f"{name}.weight"] = module.merged()
    left = (*_PARTS, DIGEST)
    settings: Any = (state.get("cfg") or {}).get("model") or state["args"]
    settings = settings if isinstance(settings, dict) else vars(settings)
    settings.update(lora_rank=0, lora_base=None)
    state.update(
        model={name: x for name, x in whole.items() if not name.endswith(left)},
        last_optimizer_state=None,
    )
    write_checkpoint(state, out)
