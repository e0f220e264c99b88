"""Low-rank adaptation (LoRA): a projection is frozen, and two small matrices are trained beside it.

Hu et al. 2021, arXiv 2106.09685, section 4.1, Eq. 3:

    h = W₀ x + (α / r) B A x,    A of r rows, drawn at random; B of r columns, zeros at first

W₀ is read from ``--lora-base``, and A and B are trained.  Parameters that the base lacks, such as a
classification head or the table of another position encoding, are trained as usual.  Checkpoints
hold only the trained parameters and a digest of the base.
"""

import hashlib
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Mapping, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.files import check_writable, refuse_own_source
from fairseq_posenc.checkpoints.loader import load
from fairseq_posenc.checkpoints.reading import read_checkpoint, refuse_partial, write_checkpoint
from fairseq_posenc.configuration.features import Completed
from fairseq_posenc.flags.options import SIDES, Layer, Options, option
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.models import FAMILIES
from fairseq_posenc.models.family import PartlySaved

#: The state-dict entry with the digest of the base: 32 whole numbers below 256, which are exact in
#: every type that a model can have.
DIGEST = "low_rank_base"
#: Suffixes of the names of the trained matrices.
PARTS = (".lora_A", ".lora_B")
#: Settings that change layers after they were built, or leave some layers out.
_CHANGING = (
    *("quant_noise_pq", "quant_noise_scalar", "share_layers"),
    *(f"{side}_layers_to_keep" for side in SIDES),
)


@dataclass
class LowRankFlags:
    """Flags of low-rank adaptation."""

    lora_rank: Optional[int] = setting(
        0,
        "rank r of the two matrices that are trained beside each projection in --lora-layers, or 0 "
        "for none; needs --lora-base",
        at_least=0,
        at_most=2**16,
    )
    lora_alpha: Optional[float] = setting(
        16.0,
        "α: the product of the two matrices is multiplied by α / r",
        above=0,
        at_most=1e6,
        needs={"lora_rank": None},
    )
    lora_layers: Optional[str] = setting(
        "q_proj,v_proj",
        "names of the projections to adapt, such as q_proj,k_proj,v_proj,out_proj,fc1,fc2, or "
        "self_attn.q_proj for self-attention alone",
        needs={"lora_rank": None},
    )
    lora_base: Optional[str] = setting(
        None,
        "base checkpoint to adapt; its parameters are not trained",
        role="free",
        needs={"lora_rank": None},
    )


class LowRankLinear(nn.Linear):
    """W₀ x + b + (α / r) B A x (Hu et al., Eq. 3), with the W₀ and b of *frozen*."""

    def __init__(self, frozen: nn.Linear, rank: int, alpha: float) -> None:
        nn.Module.__init__(self)  # nn.Linear would draw parameters
        self.in_features, self.out_features = frozen.in_features, frozen.out_features
        self.weight, self.bias = frozen.weight, frozen.bias
        self.scale = alpha / rank
        like = frozen.weight
        self.lora_A = nn.Parameter(like.new_empty(rank, like.size(1)))
        self.lora_B = nn.Parameter(like.new_zeros(like.size(0), rank))
        nn.init.normal_(self.lora_A, std=like.size(1) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        """The output (…, C_out) for *x* (…, C_in)."""
        low = F.linear(F.linear(x, self.lora_A), self.lora_B)
        return F.linear(x, self.weight, self.bias) + self.scale * low

    @torch.no_grad()
    def merged(self) -> Tensor:
        """W₀ + (α / r) B A."""
        return self.weight + self.scale * (self.lora_B @ self.lora_A)


def check_low_rank(completed: Completed) -> None:
    """Refuse ``--lora-rank`` without a base, for other models, or with flags that change layers."""
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
    for name in _CHANGING:
        value = option(cfg, name)
        if value not in (None, False, 0, 0.0, "none"):
            raise UsageError(
                f"--lora-rank {rank}: does not go with {flag_of(name)} {value}; drop one of the two"
            )


def add_low_rank(model: Layer, cfg: Options) -> None:
    """Add low-rank matrices to a new model, in place, if ``--lora-rank`` is given.

    Raises:
        UsageError: the base is missing or does not fit, or ``--lora-layers`` has an unknown name.
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
            f"--lora-base {path}: its parameters do not fit this model "
            f"({str(error).splitlines()[-1].strip()}); give the settings that it was trained with"
        ) from error
    names = frozenset(model.state_dict()) & frozenset(base)
    chosen = [name.strip() for name in str(cfg.lora_layers).split(",")]
    adapted = set()
    for place, parent in list(model.named_modules()):
        for child in list(parent.children()):
            same = [other for other, module in parent._modules.items() if module is child]
            paths = [f".{place}.{each}" for each in same]
            named = {end for end in chosen if any(path.endswith(f".{end}") for path in paths)}
            if named and type(child) is nn.Linear:
                layer = LowRankLinear(child, rank, float(cfg.lora_alpha))
                for each in same:  # Reformer's queries and keys are one projection
                    setattr(parent, each, layer)
                adapted |= named
    absent = [name for name in chosen if name not in adapted]
    if absent:
        linear = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
        known = sorted({name.rpartition(".")[2] for name in linear})
        raise UsageError(
            f"--lora-layers {cfg.lora_layers}: no projection is named {absent[0]!r}; choose from "
            f"{', '.join(known)}"
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in names)
    digest = digest_of(base)
    model.register_buffer(DIGEST, digest.clone())
    model.left_out, model.check_state = names, partial(_check_base, path, digest)


def _check_base(path: str, digest: Tensor, state: Mapping[str, Tensor]) -> None:
    saved = state.get(DIGEST)
    if saved is not None and not torch.equal(saved.cpu().float(), digest):
        raise UsageError(
            f"--lora-base {path}: the checkpoint was trained with another base; give its own base"
        )


def _read_base(path: str) -> Dict[str, Tensor]:
    if not os.path.isfile(path):
        raise UsageError(
            f"--lora-base {path}: no such file; give the base checkpoint (when you load a "
            "trained model, with --model-overrides \"{'lora_base': 'FILE'}\")"
        )
    state: Dict[str, Tensor] = read_checkpoint(path)["model"]
    refuse_partial(f"--lora-base {path}", state)
    return state


def digest_of(state: Mapping[str, Tensor]) -> Tensor:
    """A digest of all parameters, as :data:`DIGEST` describes."""
    hashed = hashlib.sha256()
    for name in sorted(state):
        x = state[name].detach().cpu().contiguous()
        hashed.update(name.encode())
        hashed.update(x.view(torch.uint8).numpy().tobytes() if x.dim() else str(x.item()).encode())
    return torch.tensor(list(hashed.digest()), dtype=torch.float32)


def merge_file(path: str, out: str, base: Optional[str], data: Optional[str]) -> None:
    """Write the model of checkpoint *path* to *out*, with its matrices merged into the base.

    *base* and *data* are the paths of the base and of the data if these were moved.

    Raises:
        UsageError: the checkpoint has no low-rank matrices, a file is missing or the wrong one, or
            *out* is one of the files.
    """
    check_writable(out)
    state = read_checkpoint(path)
    if DIGEST not in state["model"]:
        raise UsageError(f"{path}: has no low-rank matrices, so it needs no merging")
    moved = {"lora_base": base, "data": data}
    loaded = load(path, overrides={name: value for name, value in moved.items() if value})
    model: nn.Module = loaded.model
    refuse_own_source(out, path, loaded.settings["lora_base"])
    whole: Dict[str, Tensor] = dict(nn.Module.state_dict(model))  # including those of the base
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
