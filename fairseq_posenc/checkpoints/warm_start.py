"""Loading a checkpoint that was trained with another position encoding, attention or key heads.

Apart from position state, parameters have the same names for every encoding and in stock fairseq,
and fairseq loads them strictly.  Position state and random features are an exception: entries that
the model lacks are left out, entries that the checkpoint lacks keep their initial values, and both
are logged.

Fewer key heads follow Ainslie et al. 2023, arXiv 2305.13245, section 2.1: the key projection of a
group is the mean of its heads' key projections, the value projection likewise, and training goes on
for a short while.  For more key heads, each existing head is repeated, which computes the same.
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

#: The names, in a stack or a layer, of modules that hold the state of positions.
POSITION_STATE = r"(embed_positions|position_(bias|map|terms|vectors)(_\d+)?)"
_POSITION_STATE = re.compile(rf"\.({POSITION_STATE}|feature_map)\.")
_UNTRAINED = ("._float_tensor", ".projection")  # buffers of sinusoids and of random features
_PROJECTIONS = re.compile(r"(.+)\.(?:k_proj|v_proj)\.(?:weight|bias)$")


def in_any_layer(key: str) -> str:
    """The key without its layer index, because pruning renumbers the layers later."""
    return re.sub(r"\.layers\.\d+\.", ".layers.*.", key)


def _positions_apart(keys: Iterable[str], others: Iterable[str], name: str) -> List[str]:
    """The *keys* of position state in the stack *name* that *others* have in no layer."""
    known = {in_any_layer(key) for key in others}
    ours = [key for key in keys if key.startswith(f"{name}.") and _POSITION_STATE.search(key)]
    return [key for key in ours if in_any_layer(key) not in known]


def position_difference(keys: Iterable[str], others: Iterable[str]) -> Optional[str]:
    """A trained position parameter that is in only one of the two, or None."""

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
    """Fill the learned table *key* with copies of the checkpoint's shorter one, in place.

    Longformer, Beltagy et al., arXiv 2004.05150, section 5: copies keep what was learned of
    neighbouring positions everywhere but where two copies meet.
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

    *name* is the name of the stack in the state, such as ``encoder``.

    A difference is refused if *stack* is strict about positions.
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
            f"{flag}: the checkpoint was trained differently (first difference: {odd}, only in "
            f"{'it' if left_out else 'this model'}); {stack.strict_advice}"
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
    """The weight or bias of a key or value projection, for another number of heads.

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
    """Adapt the heads of keys and values in *state_dict* to *stack*, in place, and log the change.

    A difference is refused if *stack* is strict about positions.
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
            continue  # fairseq refuses other sizes when it loads them
        if stack.strict_positions:
            raise UsageError(
                f"--kv-heads {kv_heads}: the checkpoint has {heads} heads of keys in {key}; "
                f"{stack.strict_advice}"
            )
        state_dict[key] = regroup(x, head_dim, kv_heads)
        changed[heads] = kv_heads
    for heads, kv_heads in changed.items():
        how = "means of groups" if heads > kv_heads else "each repeated"
        logger.warning(
            "warm start: %s has %d heads of keys and values for the %d of the checkpoint (%s)",
            *(name, kv_heads, heads, how),
        )


def _same_widths(module: Any, state_dict: State, name: str) -> bool:
    """True if the attention *name* has the input and query sizes of *module*."""
    q, k = (state_dict.get(f"{name}.{part}_proj.weight") for part in "qk")
    if q is None or k is None or k.size(1) != module.k_proj.in_features:
        return False
    return q.shape == (module.q_proj.out_features, module.q_proj.in_features)


def leave_out_pretraining(state: State, name: str, model: Any) -> None:
    """Drop from a checkpoint the modules that only pre-training needs, in place.

    A pre-trained model may have no head that predicts tokens: the new model's head then stays as
    initialised, with its projection tied to the embeddings of the checkpoint.

    Modules that *model* itself has are kept, and so are classification heads with
    ``--load-checkpoint-heads``.
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
    head = model.encoder.lm_head  # None where another head is trained
    for key, value in head.state_dict().items() if left_out and head is not None else ():
        tied = key == "weight"
        state.setdefault(prefix + _HEAD + key, state[prefix + _EMBEDDING] if tied else value)
