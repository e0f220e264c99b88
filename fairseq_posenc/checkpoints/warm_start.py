"""Loading a checkpoint that was trained with another encoding, attention or number of key heads.

Apart from position state, parameters have the same names for every encoding and in stock fairseq,
and fairseq loads them strictly.  Position state and random features are an exception: entries that
the model lacks are left out, and entries that the checkpoint lacks keep their initial values.  All
such entries are logged.

For fewer key heads, as in Ainslie et al. 2023, arXiv 2305.13245, section 2.1, the key projections
of the heads in a group are replaced by their mean, likewise the value projections, and training
continues briefly.  For more key heads, heads are repeated, which leaves the outputs unchanged.
"""

import logging
import re
from collections import Counter
from typing import Any, Dict, Iterable, List, Optional, Set

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.layers.heads import PRETRAINING

State = Dict[str, Tensor]
logger = logging.getLogger(__name__)

_HEAD, _EMBEDDING = "encoder.lm_head.", "encoder.sentence_encoder.embed_tokens.weight"

#: Names of modules, in a stack or a layer, that hold position state.
POSITION_STATE = r"(embed_positions|position_(bias|map|terms|vectors)(_\d+)?)"
_POSITION_STATE = re.compile(rf"\.({POSITION_STATE}|feature_map)\.")
_UNTRAINED = ("._float_tensor", ".projection")  # buffers of sinusoids and random features
_PROJECTIONS = re.compile(r"(.+)\.(?:k_proj|v_proj)\.(?:weight|bias)$")


def in_any_layer(key: str) -> str:
    """*key* with ``*`` in place of the layer index, because pruning renumbers layers later."""
    return re.sub(r"\.layers\.\d+\.", ".layers.*.", key)


def _positions_apart(keys: Iterable[str], others: Iterable[str], name: str) -> List[str]:
    """The position-state *keys* of the stack *name* that *others* lack in all layers."""
    known = {in_any_layer(key) for key in others}
    ours = [key for key in keys if key.startswith(f"{name}.") and _POSITION_STATE.search(key)]
    return [key for key in ours if in_any_layer(key) not in known]


def position_difference(keys: Iterable[str], others: Iterable[str]) -> Optional[str]:
    """A trained position parameter that is only in *keys* or only in *others*, or None."""

    def trained(names: Iterable[str]) -> Set[str]:
        return {k for k in names if _POSITION_STATE.search(k) and not k.endswith(_UNTRAINED)}

    return min(trained(keys) ^ trained(others), default=None)


def log_taken(path: str, keys: Iterable[str], ours: Iterable[str]) -> None:
    """Log the parameters in *keys* that a model with parameters *ours* took from *path*."""
    taken = set(keys) & set(ours)
    kinds = Counter(in_any_layer(key) for key in sorted(taken))
    names = ", ".join(f"{kind} ({n})" if n > 1 else kind for kind, n in kinds.items())
    logger.info("warm start: took %d tensors from %s: %s", len(taken), path, names)


def repeat_positions(stack: Any, state_dict: State, key: str) -> None:
    """Repeat the checkpoint's learned table *key*, in place, if it is shorter than the model's.

    Longformer, Beltagy et al., arXiv 2004.05150, section 5: copies preserve the
    local structure everywhere except where two copies meet.
    """
    table: Any = getattr(stack, "embed_positions", None)
    saved, weight = state_dict.get(key), getattr(table, "weight", None)
    if weight is None or saved is None or len(weight) <= len(saved):
        return
    first = 0 if table.padding_idx is None else table.padding_idx + 1  # row of the first position
    before, now = len(saved) - first, len(weight) - first
    places = torch.arange(now, device=saved.device) % before
    state_dict[key] = torch.cat((saved[:first], saved[first:][places]))
    logger.warning(
        "warm start: %s has %d positions in the checkpoint, repeated to fill %d",
        *(key, before, now),
    )


def adapt_positions(stack: Any, state_dict: State, name: str) -> None:
    """Adapt the position state in *state_dict* to *stack*, in place, and log every difference.

    *name* is the prefix of the stack's keys, such as ``encoder``.

    If ``stack.strict_positions`` is set, a difference is refused.
    """
    ours = {f"{name}.{key}": value for key, value in stack.state_dict().items()}
    left_out = _positions_apart(state_dict, ours, name)
    new = _positions_apart(ours, state_dict, name)
    if stack.strict_positions and left_out + new:
        odd = (left_out + new)[0]
        flag = f"--position-encoding {stack.encoding.name}"
        if ".feature_map." in odd:
            flag = f"--attention {stack.encoding.options.attention}"
        raise UsageError(
            f"{flag}: the checkpoint was trained differently (first difference: {odd} is only in "
            f"the {'checkpoint' if left_out else 'model'}); {stack.strict_advice}"
        )
    for key in left_out:
        shape = tuple(state_dict.pop(key).shape)
        logger.warning("warm start: left out %s %s, which this model does not have", key, shape)
    if not stack.strict_positions:
        repeat_positions(stack, state_dict, f"{name}.embed_positions.weight")
    for key in new:
        state_dict[key] = ours[key]
        logger.warning("warm start: %s %s starts untrained", key, tuple(ours[key].shape))


def regroup(x: Tensor, head_dim: int, kv_heads: int) -> Tensor:
    """Convert the weight or bias of a key or value projection to *kv_heads* heads.

    >>> import torch
    >>> regroup(torch.tensor([1.0, 3.0, 5.0, 7.0]), head_dim=1, kv_heads=2)
    tensor([2., 6.])
    >>> regroup(torch.tensor([2.0, 6.0]), head_dim=1, kv_heads=4)
    tensor([2., 2., 6., 6.])

    The shape (N·D, C) or (N·D), for N heads, becomes (G·D, C) or (G·D) for G = *kv_heads*, which
    is a divisor or a multiple of N.
    """
    heads = x.view(-1, head_dim, *x.shape[1:])
    if len(heads) >= kv_heads:
        heads = heads.view(kv_heads, -1, *heads.shape[1:]).mean(dim=1)
    else:
        heads = heads.repeat_interleave(kv_heads // len(heads), dim=0)
    return heads.flatten(0, 1)


def adapt_heads(stack: Any, state_dict: State, name: str) -> None:
    """Adapt the key and value heads in *state_dict* to *stack*, in place, and log the change.

    If ``stack.strict_positions`` is set, a difference is refused.
    """
    grouped = {
        in_any_layer(f"{name}.{path}"): module
        for path, module in stack.named_modules()
        if hasattr(module, "kv_heads")
    }
    changed: Dict[int, int] = {}
    for key, x in state_dict.items():
        match = _PROJECTIONS.match(key)
        module = grouped.get(in_any_layer(match[1])) if match else None
        if match is None or module is None:
            continue
        head_dim, kv_heads = module.head_dim, module.kv_heads
        heads, rest = divmod(len(x), head_dim)
        divides = not rest and (heads % kv_heads == 0 or kv_heads % heads == 0)
        if heads == kv_heads or not divides or not _same_widths(module, state_dict, match[1]):
            continue  # fairseq itself refuses other sizes in loading
        if stack.strict_positions:
            raise UsageError(
                f"--kv-heads {kv_heads}: the checkpoint has {heads} key heads in {key}; "
                f"{stack.strict_advice}"
            )
        state_dict[key] = regroup(x, head_dim, kv_heads)
        changed[heads] = kv_heads
    for heads, kv_heads in changed.items():
        how = "means of groups" if heads > kv_heads else "each is repeated"
        logger.warning(
            "warm start: %s has %d key and value heads, made from %d in the checkpoint (%s)",
            *(name, kv_heads, heads, how),
        )


def _same_widths(module: Any, state_dict: State, name: str) -> bool:
    """True if the attention *name* in *state_dict* has the input and query sizes of *module*."""
    q, k = (state_dict.get(f"{name}.{part}_proj.weight") for part in "qk")
    if q is None or k is None or k.size(1) != module.k_proj.in_features:
        return False
    return q.shape == (module.q_proj.out_features, module.q_proj.in_features)


def leave_out_pretraining(state: State, name: str, model: Any) -> None:
    """Remove modules that only pre-training needs from the *state* of a checkpoint, in place.

    If a pre-trained model has no head that predicts tokens, the head of *model* stays as
    initialised, with its projection tied to the embeddings of the checkpoint.

    Modules that *model* also has are kept.  With ``--load-checkpoint-heads``, classification heads
    are kept as well.
    """
    prefix = f"{name}." if name else ""
    present, left_out = dict(model.named_modules()), False
    for module, flag in PRETRAINING.items():
        kept = model.args.load_checkpoint_heads and module.startswith("classification_heads.")
        keys = [key for key in state if key.startswith(f"{prefix}{module}.")]
        if keys and module not in present and not kept:
            for key in keys:
                del state[key]
            logger.info("left out %s%s, which only %s needs", prefix, module, flag)
            left_out = True
    head = model.encoder.lm_head  # None if another head is trained
    for key, value in head.state_dict().items() if left_out and head is not None else ():
        tied = key == "weight"
        state.setdefault(prefix + _HEAD + key, state[prefix + _EMBEDDING] if tied else value)
