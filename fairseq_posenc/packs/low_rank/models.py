"""Models of which only low-rank matrices are trained (:mod:`.matrices`).

The parameters W₀ of Hu et al. 2021, arXiv 2106.09685, section 4.1, are read from ``--lora-base``
and not trained.  What the base lacks, such as a classification head or the table of another
position encoding, is trained as usual.  Checkpoints hold the trained part alone, with a digest of
the base.
"""

import hashlib
import os
from functools import partial
from typing import Dict, Mapping

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.partial import PartlySaved, refuse_partial
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.configuration.features import Completed
from fairseq_posenc.flags.options import SIDES, Layer, Options, option
from fairseq_posenc.models import FAMILIES
from fairseq_posenc.packs.low_rank.matrices import DIGEST, LowRankLinear


def check_low_rank(completed: Completed) -> None:
    """Refuse flags under which the base would not fit, or hooks of frozen layers be lost."""
    cfg = completed.cfg
    rank = option(cfg, "lora_rank")
    if not rank:
        return
    family = FAMILIES[completed.model]
    if not issubclass(family.class_, PartlySaved):
        raise UsageError(
            f"--lora-rank {rank}: models of --task {family.tasks[0]} cannot be adapted; drop it"
        )
    if option(cfg, "lora_base") is None:
        raise UsageError(f"--lora-rank {rank}: also give --lora-base, the checkpoint to adapt")
    kept = [f"{side}_layers_to_keep" for side in SIDES]  # the base is read as a whole
    for name in ("quant_noise_pq", "quant_noise_scalar", "share_layers", *kept):
        value = option(cfg, name)
        if value not in (None, False, 0, 0.0, "none"):
            raise UsageError(
                f"--lora-rank {rank}: does not go with {flag_of(name)} {value}; drop one of the two"
            )


def add_low_rank(model: Layer, cfg: Options) -> None:
    """Adapt a model that was just built, in place, as ``--lora-rank`` says.

    Args:
        model: the model.
        cfg: its configuration, complete.

    Raises:
        UsageError: the base is missing or another model, or no projection has one of the names.
    """
    rank = int(option(cfg, "lora_rank") or 0)
    if not rank:
        return
    path = option(cfg, "lora_base")
    base = _read_base(path)
    try:
        model.load_state_dict(dict(base))
    except RuntimeError as error:
        raise UsageError(
            f"--lora-base {path}: its parameters are not those of this model "
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
    digest = digest_of(base)
    model.register_buffer(DIGEST, digest.clone())
    model.left_out, model.check_state = names, partial(_check_base, path, digest)


def _check_base(path: str, digest: Tensor, state: Mapping[str, Tensor]) -> None:
    """Refuse a state that was trained with another base than *path*, which has *digest*."""
    saved = state.get(DIGEST)
    if saved is not None and not torch.equal(saved.cpu(), digest.to(saved.dtype)):
        raise UsageError(
            f"--lora-base {path}: the checkpoint was trained with another base; give that one"
        )


def _plain(module: nn.Module) -> bool:
    return type(module) in (nn.Linear, LowRankLinear)


def _read_base(path: str) -> Dict[str, Tensor]:
    if not os.path.isfile(path):
        raise UsageError(
            f"--lora-base {path}: no such file; give the checkpoint that is adapted (for a model "
            "that is loaded: --model-overrides \"{'lora_base': 'FILE'}\")"
        )
    state: Dict[str, Tensor] = read_checkpoint(path)["model"]
    refuse_partial(f"--lora-base {path}", state)
    return state


def digest_of(state: Mapping[str, Tensor]) -> Tensor:
    """A digest of all parameters, as :data:`DIGEST` describes."""
    found = hashlib.sha256()
    for name in sorted(state):
        x = state[name].detach().cpu().contiguous()
        found.update(name.encode())
        found.update(x.view(torch.uint8).numpy().tobytes() if x.dim() else str(x.item()).encode())
    both = torch.tensor(list(found.digest()), dtype=torch.float32).view(16, 2)
    return both[:, 0] * 256 + both[:, 1]
