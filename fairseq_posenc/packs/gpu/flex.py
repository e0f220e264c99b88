"""``FlexAttention``: softmax attention with a logit per distance, without a bias for all pairs.

T5, ALiBi, KERPLE and Sandwich add a logit b_h(j - i) that depends only on the distance.  PyTorch's
``flex_attention`` reads this logit inside its kernel from a table of 2T - 1 logits per head,

    softmax_j(scale · q_i·k_j + b_h(j - i)) v_j,

so no tensor has the size T·T, and whole blocks of hidden keys are skipped.  PyTorch computes
gradients only on a GPU; it sums the gradient of b by atomic additions, whose order is not fixed.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.attention.functional import Batch
from fairseq_posenc.attention.softmax import MultiheadAttention
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.versions import TORCH_VERSION
from fairseq_posenc.configuration.features import Completed
from fairseq_posenc.encodings import Encoding, Places, Stack
from fairseq_posenc.encodings.base import DistanceBias
from fairseq_posenc.encodings.registry import FLAG as ENCODING_FLAG
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import register_replacement
from fairseq_posenc.flags.settings import SAME, setting

#: Since PyTorch 2.6, ``flex_attention`` supports gradients of tensors that *score_mod* reads.
HAS_FLEX = TORCH_VERSION >= (2, 6)
FLAG = "--attention-backend flex"
#: Number of queries, and of keys, in a block of PyTorch's kernel.
BLOCK = 128
#: Least number of channels of a head that the kernel supports.
LEAST_CHANNELS = 16


@dataclass
class BackendFlags:
    """The flag that selects the implementation of softmax attention."""

    attention_backend: Optional[str] = setting(
        "fused",
        "implementation of softmax attention: {choices}; flex, for GPUs and PyTorch 2.6, is "
        "PyTorch's FlexAttention, which needs no bias for all pairs of tokens with T5, ALiBi, "
        "KERPLE or Sandwich; its gradients of learned logits are not deterministic",
        role="free",
        exported=SAME,
        choices=("fused", "flex"),
        needs={"attention": ("softmax",)},
    )


def check_backend(completed: Completed) -> None:
    """Refuse ``--attention-backend flex`` for gated units, which have no softmax attention."""
    cfg = completed.cfg
    if cfg.attention_backend == "flex" and cfg.layer == "gated":
        raise UsageError(
            f"{FLAG}: has no effect with --layer gated; drop it, or give --layer transformer"
        )


@register_replacement("attention_backend", of=MultiheadAttention, value="flex")
class FlexAttention(MultiheadAttention):
    """Softmax attention through ``flex_attention``; arguments as for softmax attention.

    On a CPU, and with a cache, it uses a dense bias instead, with the same results.
    """

    takes = MultiheadAttention.takes - {"content"}

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse unsupported options, and encodings whose logits are not one per distance."""
        super().check(options, encodings, stacks)
        if not HAS_FLEX:
            raise UsageError(f"{FLAG}: needs PyTorch 2.6, and this is {torch.__version__}")
        for stack in stacks:
            if stack.head_dim < LEAST_CHANNELS:
                raise UsageError(
                    f"{FLAG}: the kernel needs heads of {LEAST_CHANNELS} channels or more, and "
                    f"those of the {stack.side} have {stack.head_dim}; give fewer heads"
                )
        biased = [encoding for encoding in encodings if encoding.shared is not None]
        for encoding in biased:
            if not issubclass(encoding.shared or object, DistanceBias):
                raise UsageError(
                    f"{FLAG}: the logits of {ENCODING_FLAG} {encoding.name} are not a function of "
                    "the distance alone; drop the flag"
                )
        if not biased:
            raise UsageError(
                f"{FLAG}: {ENCODING_FLAG} {'+'.join(one.name for one in encodings)} adds no logits "
                "that depend on the distance, so the flag would change nothing; drop it"
            )
        if option(options, "untie_cls", False):
            raise UsageError(f"{FLAG}: cannot be combined with --untie-cls; drop one of the two")
        rate = option(options, "attention_dropout")
        if rate:
            raise UsageError(
                f"{FLAG}: the kernel has no dropout, and --attention-dropout is {rate}; give 0"
            )

    @staticmethod
    def serves(x: Tensor) -> bool:
        """Whether PyTorch's kernel supports tensors like *x*, including their gradients."""
        return x.is_cuda

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """``logits`` per distance, (H, 2T - 1), float32, and ``blocks``, the mask of visible keys.

        On a CPU, and if only some tokens are new or distances are not differences of indices,
        returns the arguments of softmax attention instead.
        """
        encoding, mask, device = self.encoding, batch.padding.mask, batch.like.device
        whole = batch.like.size(1) == batch.length and places.by_index
        if not (whole and self.serves(batch.like)):
            return super().prepare(batch, places)
        distances = torch.arange(1 - batch.length, batch.length, device=device)
        return {
            "logits": encoding.by_distance(distances),
            "blocks": visible_blocks(batch.length, batch.causal, mask, device),
            **self.terms(batch, places),
        }

    def forward(
        self,
        x: Tensor,
        keys: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        **prepared: Any,
    ) -> Tensor:
        """Attend from all tokens to all tokens; see :class:`.AttentionKernel`."""
        if "logits" not in prepared:
            return super().forward(x, keys, incremental_state, **prepared)
        # a cache is still empty here: x has all tokens so far
        heads = self.extended(self.project(x, prepared, keys), x, incremental_state)
        q, factor = heads.q, prepared.get("factor")
        if factor is not None:  # a Python number would need a compilation for every length
            q = (q * factor).type_as(q)
        by_distance = (prepared["logits"], prepared["blocks"])
        out = flex_attend(q, heads.k, heads.v, self.encoding.scale, *by_distance)
        return self.out_proj(out.transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, C)


def flex_attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, logits: Tensor, blocks: Any
) -> Tensor:
    """softmax(scale · q kᵀ + b) v with b_ij = logits[j - i + T - 1], (B, H, T, D).

    Args:
        q: queries (B, H, T, D).
        k: keys (B, G, T, D); head h of the queries reads key head ⌊h·G / H⌋.
        v: values (B, G, T, D).
        scale: factor on q·k.
        logits: for each head and distance, (H, 2T - 1), float32.
        blocks: the visible keys, from :func:`visible_blocks`.
    """
    zero = torch.full((), q.size(2) - 1, device=q.device)  # a number would force recompilation

    def add_logit(score: Tensor, _: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + logits[head, key - query + zero]

    kernel = _kernel(q.is_cuda)
    grouped = k.size(1) < q.size(1)
    return kernel(q, k, v, score_mod=add_logit, block_mask=blocks, scale=scale, enable_gqa=grouped)


@lru_cache(maxsize=None)
def _kernel(compiled: bool) -> Callable[..., Tensor]:
    """``flex_attention``, which computes the matrix of all pairs unless it is compiled."""
    from torch.nn.attention.flex_attention import flex_attention

    kernel: Callable[..., Tensor] = flex_attention
    return torch.compile(kernel, dynamic=True) if compiled else kernel


def visible_blocks(
    length: int, causal: bool, padding_mask: Optional[Tensor], device: torch.device
) -> Any:
    """The keys that queries see, as a ``BlockMask``, without a mask of all pairs.

    There are T = *length* queries and keys; *padding_mask* (B, T) is True at padding.
    """
    from torch.nn.attention.flex_attention import BlockMask

    real = torch.ones(1, length, dtype=torch.bool, device=device)
    real = real if padding_mask is None else ~padding_mask
    number = -(-length // BLOCK)
    parts = torch.nn.functional.pad(real, (0, number * BLOCK - length))
    parts = parts.view(len(real), 1, 1, number, BLOCK)
    whole_rows = torch.arange(1, number + 1, device=device) * BLOCK <= length
    visible = parts.any(-1).expand(-1, -1, number, -1)  # (1|B, 1, blocks of queries, of keys)
    full = parts.all(-1) & whole_rows.unsqueeze(1)
    if causal:
        visible, full = visible.tril(), full.tril(-1)

    def sees(sentence: Tensor, _: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = real[sentence if len(real) > 1 else 0, key]
        return seen & (key <= query) if causal else seen

    return BlockMask.from_kv_blocks(
        *_in_order(visible & ~full),
        *_in_order(full),
        BLOCK_SIZE=BLOCK,
        mask_mod=sees,
        seq_lengths=(length, length),
    )


def _in_order(chosen: Tensor) -> Tuple[Tensor, Tensor]:
    """For each query block, the number of *chosen* key blocks, and all key blocks, chosen first."""
    order = chosen.int().argsort(dim=-1, descending=True, stable=True)
    return chosen.sum(dim=-1).int(), order.int()
