"""Scaled dot-product attention with additive terms, and the masks of a batch.

Attention(q, k, v) = softmax(scale · q kᵀ + bias) v   (Vaswani et al. 2017, Eq. 1, with the bias of
relative encodings; RoFormer Eq. 2), fused where PyTorch supports it.  Fully masked rows give zeros.
"""

from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

from fairseq_posenc.attention.grouped import by_key_head, repeat_heads
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.basics.versions import (
    HAS_SDPA,
    SDPA_HAS_GROUPS,
    SDPA_HAS_SCALE,
    SDPA_SAFE_MASKS,
)
from fairseq_posenc.encodings import Places
from fairseq_posenc.flags.options import Layer

#: Widest heads of PyTorch's fast fused kernels on a GPU.  For wider values, as in gated attention
#: units, PyTorch uses a kernel that updates its output in global memory at every block of keys.
#: For a single query that costs little, because the output is one row.
WIDEST_FUSED = 256


class Padding(NamedTuple):
    """The padding of a batch."""

    mask: Optional[Tensor] = None  # (B, S), True at padding; None if no real token sees any padding
    left: bool = False  # whether any sequence begins with padding
    empty: bool = False  # whether any sequence consists of padding only
    # length of the first text of each pair, (B, 1), for kernels that use it, or None
    first_text: Optional[Tensor] = None

    def after(self, memory: int) -> "Padding":
        """The padding of the sequences with *memory* real tokens put in front of each."""
        if self.mask is None:
            return self
        seen = self.mask.new_zeros(self.mask.size(0), memory)
        return Padding(torch.cat((seen, self.mask), dim=1))


class Batch(NamedTuple):
    """Sizes and masks of a forward pass, from which kernels prepare their arguments."""

    # input of the first layer for the new tokens, (B, T, C); the new tokens are the last T of S,
    # unless *assigned* gives them other positions
    like: Tensor
    length: int  # S
    padding: Padding = Padding()  # the padding of all S tokens
    causal: bool = False  # whether queries see no later keys
    # how many keys, counted from the last, this forward pass projects: None for T, because a cache
    # has the earlier keys; S if layers get *keys*, as with a memory
    projected: Optional[int] = None
    assigned: Optional[Places] = None  # positions in place of 0, 1, 2, …

    @property
    def new_padding(self) -> Optional[Tensor]:
        """The padding mask of the new tokens, (B, T), or None."""
        mask = self.padding.mask
        return None if mask is None else mask[:, -self.like.size(1) :]


def additive_mask(
    query_length: int,
    key_length: int,
    causal: bool,
    key_padding_mask: Optional[Tensor],
    like: Tensor,
) -> Optional[Tensor]:
    """0 at visible keys and -inf at hidden ones, (1|B, 1, 1|T, S), or None if nothing is hidden.

    >>> additive_mask(2, 3, True, None, torch.zeros(1))
    tensor([[[[0., 0., -inf],
              [0., 0., 0.]]]])

    Queries are the last T of S positions, and *key_padding_mask* (B, S) is True at padding.  The
    result has the dtype and the device of *like*.
    """
    hidden = None
    if causal and query_length > 1:
        offset = key_length - query_length
        ones = torch.ones(query_length, key_length, dtype=torch.bool, device=like.device)
        hidden = ones.triu(offset + 1).view(1, 1, query_length, key_length)
    if key_padding_mask is not None:
        padding = key_padding_mask.bool().view(-1, 1, 1, key_length)
        hidden = padding if hidden is None else hidden | padding
    if hidden is None:
        return None
    return torch.zeros_like(hidden, dtype=like.dtype).masked_fill_(hidden, float("-inf"))


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of products with *x*: the autocast dtype if autocast is on, else that of *x*."""
    if hasattr(torch, "get_autocast_dtype"):  # PyTorch 2.4
        enabled = torch.is_autocast_enabled(x.device.type)
        return torch.get_autocast_dtype(x.device.type) if enabled else x.dtype
    if x.is_cuda:
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else x.dtype
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else x.dtype


def aligned(bias: Tensor) -> Tensor:
    """*bias* (1|B, 1|H, 1|T, S) with rows aligned in memory for the fused kernels of a GPU.

    The kernels need dense rows that start at multiples of 8 elements; PyTorch would copy any other
    bias in every layer.
    """
    if not bias.is_cuda:
        return bias
    gap, bias = -bias.size(-1) % 8, bias.contiguous()
    if not gap:
        return bias
    # padded as a matrix, because F.pad may change the layout of a four-dimensional tensor
    rows = F.pad(bias.flatten(0, 2), (0, gap))
    return rows.view(*bias.shape[:-1], -1)[..., : bias.size(-1)]


def dropout_rate(dropout: FairseqDropout) -> float:
    """The current rate of a ``FairseqDropout``, which can stay active at inference."""
    return dropout.p if dropout.training or dropout.apply_during_inference else 0.0


def masks(kernel: Layer, batch: Batch, places: Places) -> Dict[str, Any]:
    """Masks and content-free logits for a *kernel* that computes a logit for every query and key.

    *batch* and *places* are the arguments of :meth:`.AttentionKernel.prepare`.

    Returns:
        ``bias``, the sum of masks and logits, (1|B, 1|H, 1|T, S), or None; ``causal``, whether
        attention itself has to hide later keys; ``empty_rows``, whether a query may see no key.
    """
    padding, like, shared_bias = batch.padding, batch.like, kernel.encoding.shared_bias
    logits = None if shared_bias is None else shared_bias(places, cls_first=not padding.left)
    # the causal mask of the fused kernel needs T = S, and cannot be combined with a bias
    in_bias = kernel.causal_in_bias or logits is not None or padding.mask is not None
    fused, bias = not in_bias and like.size(1) == batch.length, None
    if not fused:
        bias = additive_mask(like.size(1), batch.length, batch.causal, padding.mask, like)
    if logits is not None:
        logits = logits.to(product_dtype(like))
        bias = logits if bias is None else bias + logits
    sees_nothing = padding.empty or (batch.causal and padding.left)
    return {
        "bias": None if bias is None else aligned(bias.to(product_dtype(like))),
        "causal": batch.causal and fused,
        "empty_rows": padding.mask is not None and sees_nothing,
    }


def drop(x: Tensor, dropout: FairseqDropout) -> Tensor:
    """Apply a ``FairseqDropout`` at its current rate, without any operation if that is 0."""
    # dropout_rate is inlined, which saves a call in every layer of a model without dropout
    active = dropout.p > 0 and (dropout.training or dropout.apply_during_inference)
    return F.dropout(x, dropout.p) if active else x


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    bias: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    empty_rows: bool = True,
) -> Tensor:
    """Attention output (B, H, T, D), from a fused kernel if possible; 0 for fully masked rows.

    >>> q = torch.zeros(1, 1, 2, 4)  # equal logits: the mean of the visible values
    >>> v = torch.tensor([[2.0], [4.0]]).expand(1, 1, 2, 1)
    >>> attend(q, q, v, scale=0.5, causal=True).flatten()
    tensor([2., 3.])

    Args:
        q: queries (B, H, T, D).
        k: keys (B, G, S, D); query head h uses key head ⌊h·G / H⌋.
        v: values (B, G, S, D).
        scale: factor on q·k.
        bias: additive term (1|B, 1|H, 1|T, S), -inf at hidden keys.
        causal: hide later keys; needs T = S and no *bias*.
        dropout: probability of dropping an attention weight.
        empty_rows: False if no row of *bias* hides all keys; this saves a search for such rows.
    """
    # On a CPU, PyTorch has no fused kernel with dropout or with gradients of the bias; PyTorch's
    # fallback takes 1.15 times as long as attend_with_weights at 512 tokens.
    on_cpu = dropout == 0 and (bias is None or not bias.requires_grad)
    narrow = v.size(-1) <= WIDEST_FUSED or q.size(2) == 1
    fused = narrow if q.is_cuda else on_cpu
    if not (HAS_SDPA and fused) or torch.jit.is_tracing():
        return attend_with_weights(q, k, v, scale, bias, causal, dropout, empty_rows)[0]
    heads, groups = q.size(1), {}
    if k.size(1) != heads:
        if not causal and (bias is None or bias.size(1) == bias.size(2) == 1):
            # queries that share a key head see the same keys: join them instead of copying keys
            out = attend(by_key_head(q, k.size(1)), k, v, scale, bias, False, dropout, empty_rows)
            return out.reshape(q.shape[:3] + v.shape[3:])
        # on a GPU, only the half-precision kernel without a bias supports groups
        if SDPA_HAS_GROUPS and not (q.is_cuda and (bias is not None or q.element_size() > 2)):
            groups = {"enable_gqa": True}
        else:
            k, v = repeat_heads(k, heads), repeat_heads(v, heads)
    masked = None
    if bias is not None:
        bias = bias.to(q.dtype)
        if empty_rows and not SDPA_SAFE_MASKS:
            bias, masked = _without_empty_rows(bias)
    if SDPA_HAS_SCALE:
        out = F.scaled_dot_product_attention(q, k, v, bias, dropout, causal, scale=scale, **groups)
    else:
        q = q * (scale * q.size(-1) ** 0.5)
        out = F.scaled_dot_product_attention(q, k, v, bias, dropout, causal)
    return out if masked is None else out.masked_fill(masked, 0.0)


def _without_empty_rows(bias: Tensor) -> Tuple[Tensor, Tensor]:
    """*bias* with zeros in rows that hide all keys; and a mask of these rows, (1|B, 1|H, 1|T, 1).

    Without the zeros, the softmax of these rows and its gradients would be NaN.
    """
    masked = bias.detach().amax(dim=-1, keepdim=True) == float("-inf")
    return bias.masked_fill(masked, 0.0), masked


def attend_with_weights(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    bias: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    empty_rows: bool = True,
    relative_values: Optional[Callable[[Tensor], Tensor]] = None,
) -> Tuple[Tensor, Tensor]:
    """Output (B, H, T, D) and weights before dropout (B, H, T, S), with the softmax in float32.

    *relative_values* maps weights after dropout to a tensor (B, H, T, D) that is added to the
    output; the other arguments are those of :func:`attend`.
    """
    if causal:
        bias = additive_mask(q.size(2), k.size(2), True, None, q)
    masked = None
    if bias is not None and empty_rows and not causal:
        bias, masked = _without_empty_rows(bias)
    heads, kv_heads = q.size(1), k.size(1)
    if kv_heads != heads:
        q = by_key_head(q, kv_heads)
    logits = torch.matmul(q * scale, k.transpose(-2, -1))  # (B, H, T, S)
    if kv_heads != heads:
        logits = logits.view(len(q), heads, -1, k.size(2))
    logits = logits.to(AT_LEAST_FLOAT32[q.dtype])
    if bias is not None:
        if q.dtype == torch.float16:  # q·k of a hidden key may be inf; inf - inf is NaN
            logits = logits.masked_fill(bias == float("-inf"), 0.0)
        logits += bias
    weights = torch.softmax(logits, dim=-1)
    if masked is not None:
        weights = weights.masked_fill(masked, 0.0)
    weights = weights.type_as(q)
    dropped = F.dropout(weights, dropout) if dropout > 0 else weights
    if kv_heads == heads:
        out = torch.matmul(dropped, v)
    else:
        out = torch.matmul(by_key_head(dropped, kv_heads), v).view(*weights.shape[:3], v.size(-1))
    return (out if relative_values is None else out + relative_values(dropped)), weights
