"""Feature maps of linear attention: φ of queries and ϕ of keys, with sim(q, k) = φ(q)·ϕ(k).

They stand for exp(q·k/√D) in RoFormer Eq. 10 and 11.  All of them are computed in float32 or more,
whatever the model's precision, and what a key becomes never depends on a later one.
"""

import hashlib
import math
from typing import Any, Dict, List, Optional, Tuple, Type

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fairseq_posenc.errors import UsageError

#: Keys (B, H, S, D) of consecutive tokens and their padding (B, 1, S, 1), True there, or None.
MaskedKeys = Tuple[Tensor, Optional[Tensor]]

# exp of more than this, over exp of less than its negative, squared in a gradient, is still float32
LARGEST_EXPONENT = 20.0
FAVOR_KERNELS = {"softmax": 1e-4, "relu": 1e-3}  # and what is added to their features by default


class FeatureMap(nn.Module):
    """φ(x) = ϕ(x) = elu(x) + 1 (Katharopoulos et al. 2020, arXiv 2006.16236, Eq. 7).

    Args:
        head_dim: D.
        options: the model configuration, read for the flags of a map.
        side: encoder or decoder; both have random features of their own.
    """

    #: whether each feature of the keys is divided by its own sum over the keys that a query sees
    per_feature = False

    def __init__(self, head_dim: int, options: Any, side: str) -> None:
        super().__init__()

    @staticmethod
    def size(head_dim: int, options: Any) -> int:
        """M, the number of features of heads of *head_dim* channels."""
        return head_dim

    def queries(self, q: Tensor) -> Tensor:
        """φ of queries (B, H, T, D), as (B, H, T, M)."""
        return F.elu(q).add_(1)

    def stabiliser(self, segments: List[MaskedKeys]) -> Optional[Tensor]:
        """What :meth:`keys` has to know of all keys, where all may be seen: (B, H, 1, 1) or None.

        Args:
            segments: all keys.
        """
        return None

    def keys(self, k: Tensor, stabiliser: Optional[Tensor] = None) -> Tensor:
        """ϕ of keys (B, H, S, D), as (B, H, S, M).

        Args:
            k: keys; what comes out at padding is not used.
            stabiliser: from :meth:`stabiliser`; None where no key may depend on another.
        """
        return F.elu(k).add_(1)

    def number(self, layer: int) -> None:
        """Called once, with the place of the layer in its stack."""


class SoftmaxFeatures(FeatureMap):
    """φ(q) = softmax over the features, ϕ(k) = exp(k) over its sum over the keys.

    Shen et al. 2021, arXiv 1812.01243, Eq. 5; in RoFormer section 3.3, ϕ(k) = exp(k).  The sum is
    one of the keys that a query may see, so in a causal stack it differs by query.  Each feature
    has its own, so it does not cancel; it is the query that is divided by it, which is the same
    until features are rotated.  Eq. 11 then turns φ(q) over the sum, and exp(k): only so do keys
    stay the same for later queries.  Keys are limited to ±20.
    """

    per_feature = True

    def queries(self, q: Tensor) -> Tensor:
        """Softmax of queries (B, H, T, D) over their channels."""
        return torch.softmax(q, dim=-1)

    def keys(self, k: Tensor, stabiliser: Optional[Tensor] = None) -> Tensor:
        """exp of keys (B, H, S, D)."""
        return k.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()


class Favor(FeatureMap):
    """FAVOR+: random features whose products are exp(q·k/√D) on average.

    Choromanski et al. 2021, arXiv 2009.14794, Lemma 1 and section 2.4.  With x = q or k over D^¼,
    orthogonal random ω and a small ε:

        φ(x) = (exp(ω·x - |x|²/2 - c) + ε) / √M      or, --favor-kernel relu,     relu(ω·x) + ε

    c cancels but for ε.  A query has c = max over ω of ω·x; keys share the maximum over all of
    them, or where that would show the future, c = 0 with exponents of at most 20.  Where |x|²/2
    exceeds -log ε, little but ε is left, and attention is nearly uniform.  For ε = 0 the maximum is
    one of ω·x - |x|²/2, which gives the same, and long queries and keys do not vanish; keys with
    c = 0 then want a smaller least denominator.

    Args:
        head_dim: D.
        options: reads ``favor_*``.
        side: encoder or decoder.
    """

    projection: Tensor

    def __init__(self, head_dim: int, options: Any, side: str) -> None:
        super().__init__(head_dim, options, side)
        self.kernel = str(options.favor_kernel)
        epsilon = options.favor_epsilon
        self.epsilon = float(FAVOR_KERNELS[self.kernel] if epsilon is None else epsilon)
        self.seed = int(options.favor_seed)
        self.every, self.until = int(options.favor_redraw), int(options.favor_redraw_until)
        self.side, self.layer = side, 0
        self.drawn: Optional[int] = None
        self.register_buffer("projection", torch.empty(self.size(head_dim, options), head_dim))
        self.draw(0)

    @staticmethod
    def size(head_dim: int, options: Any) -> int:
        """M: what ``favor_features`` says, else D ln D, rounded down to an even number."""
        given = options.favor_features
        return int(given) if given else max(2, 2 * int(head_dim * math.log(head_dim) / 2))

    @torch.no_grad()
    def draw(self, count: int) -> None:
        """Take the projection that follows *count* others; the same in every process."""
        key = f"{self.seed} {self.side} {self.layer} {count}"
        rows, columns = self.projection.shape
        self.projection.copy_(orthogonal_rows(rows, columns, key))
        self.drawn = count

    def set_num_updates(self, num_updates: int) -> None:
        """Draw anew if that is due; fairseq calls it before every update."""
        if not self.every:
            return
        last = min(num_updates, self.until) if self.until else num_updates
        if last // self.every != self.drawn:
            self.draw(last // self.every)

    def number(self, layer: int) -> None:
        """Take random features that no other layer of the stack has."""
        self.layer = layer
        self.draw(0)

    def queries(self, q: Tensor) -> Tensor:
        """φ of queries (B, H, T, D), as (B, H, T, M)."""
        return self._features(q, None, True)

    def stabiliser(self, segments: List[MaskedKeys]) -> Optional[Tensor]:
        """c of all keys, by way of the keys that have the maximum of their segments."""
        if self.kernel == "relu":
            return None
        found = []
        for k, hidden in segments:
            with torch.no_grad():
                tops = self._tops(k)
                tops = tops if hidden is None else tops.masked_fill(hidden, float("-inf"))
                top, place = tops.max(dim=2, keepdim=True)  # (B, H, 1, 1)
            top_again = self._tops(k.take_along_dim(place, dim=2))
            found.append(top_again.masked_fill(top == float("-inf"), float("-inf")))
        highest = torch.cat(found, dim=2).amax(dim=2, keepdim=True)
        return highest.masked_fill(highest == float("-inf"), 0.0)

    def keys(self, k: Tensor, stabiliser: Optional[Tensor] = None) -> Tensor:
        """ϕ of keys (B, H, S, D), as (B, H, S, M)."""
        return self._features(k, stabiliser, False)

    def _projected(self, x: Tensor) -> Tensor:
        """ω·x, (B, H, T, M)."""
        scaled = self.projection.to(x.dtype) * x.size(-1) ** -0.25
        return torch.matmul(x, scaled.t())

    def _norms(self, x: Tensor) -> Tensor:
        """|x|²/2, (B, H, T, 1)."""
        return x.square().sum(dim=-1, keepdim=True) * (0.5 * x.size(-1) ** -0.5)

    def _tops(self, x: Tensor) -> Tensor:
        """max over ω of what c is taken from, (B, H, T, 1)."""
        tops = self._projected(x).amax(dim=-1, keepdim=True)
        return tops if self.epsilon > 0 else tops - self._norms(x)

    def _features(self, x: Tensor, stabiliser: Optional[Tensor], own: bool) -> Tensor:
        """Features of *x* with c, (B, H, 1, 1), or c by query if *own*, or neither."""
        projected = self._projected(x)
        if self.kernel == "relu":  # relu(ω·x) + ε, in one tensor
            return F.threshold(projected.add_(self.epsilon), self.epsilon, self.epsilon, True)
        root = projected.size(-1) ** -0.5
        norms = self._norms(x) if self.epsilon > 0 or not own else torch.zeros_like(x[..., :1])
        shift = math.log(root) - norms
        limit = LARGEST_EXPONENT if stabiliser is None and not own else math.inf
        shift = shift if stabiliser is None else shift - stabiliser
        return _Exponential.apply(projected, shift, own, limit, self.epsilon * root)

    def extra_repr(self) -> str:
        """What ``print(model)`` says of this map."""
        features = self.projection.size(0)
        return f"kernel={self.kernel}, features={features}, redraw={self.every}"

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Move with the model, but stay float32 under ``.half()``."""
        exact = self.projection
        super()._apply(fn, *args, **kwargs)
        self.projection = exact.to(self.projection.device)
        return self

    def _load_from_state_dict(self, state: Dict[str, Tensor], prefix: str, *args: Any) -> None:
        rows, saved = len(self.projection), state.get(f"{prefix}projection", self.projection)
        if len(saved) != rows:
            raise UsageError(
                f"--favor-features {rows}: the checkpoint has {len(saved)} random features a head "
                f"({prefix}projection); give --favor-features {len(saved)}"
            )
        super()._load_from_state_dict(state, prefix, *args)
        self.drawn = None  # whatever the file had; with redraws on, the next update settles it


def orthogonal_rows(rows: int, columns: int, key: str) -> Tensor:
    """Rows with the length of Gaussian vectors, orthogonal in blocks of as many as fit.

    Choromanski et al. 2021, section 2.4.  Does not touch PyTorch's own random numbers.

    Args:
        rows: M.
        columns: D.
        key: decides what is drawn.

    Returns:
        (M, D), float64, on the CPU.
    """
    digest = hashlib.sha256(key.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    blocks = []
    for _ in range(math.ceil(rows / columns)):
        gaussian = torch.randn(columns, columns, dtype=torch.float64, generator=generator)
        q, r = torch.linalg.qr(gaussian)
        blocks.append((q * r.diagonal().sign()).t())  # the signs make it uniform, and unique
    lengths = torch.randn(rows, columns, dtype=torch.float64, generator=generator).norm(dim=1)
    return torch.cat(blocks)[:rows] * lengths.unsqueeze(1)


class _Exponential(torch.autograd.Function):
    """exp(exponents + shift) + ε, in the memory of the exponents, and kept alone for the gradient.

    These are the largest tensors of the whole layer; autograd would keep four of them.
    """

    @staticmethod
    def forward(
        ctx: Any, exponents: Tensor, shift: Tensor, own: bool, limit: float, epsilon: float
    ) -> Tensor:
        """Features (B, H, T, M).

        Args:
            exponents: (B, H, T, M).
            shift: (B, H, T, 1), added to them.
            own: then subtract the largest exponent of each query.
            limit: of the exponents.
            epsilon: ε.
        """
        ctx.mark_dirty(exponents)
        ctx.own, ctx.limit, ctx.epsilon = own, limit, epsilon
        shift = shift - exponents.amax(dim=-1, keepdim=True) if own else shift
        exponents.add_(shift)
        exponents = exponents if limit == math.inf else exponents.clamp_(max=limit)
        features = exponents.exp_().add_(epsilon)
        ctx.save_for_backward(features)
        return features

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of the exponents and of their shift."""
        (features,) = ctx.saved_tensors
        slopes = features - ctx.epsilon
        if ctx.limit != math.inf:
            slopes.masked_fill_(slopes > (1 - 1e-5) * math.exp(ctx.limit), 0.0)
        slopes *= gradient
        total = slopes.sum(dim=-1, keepdim=True)
        if ctx.own:
            top = features == features.amax(dim=-1, keepdim=True)
            slopes -= top * (total / top.sum(dim=-1, keepdim=True))
        return slopes, total, None, None, None


def number_random_features(stack: nn.Module) -> None:
    """Give every layer of *stack* that has random features other ones, by its place."""
    layers: List[Any] = [module for module in stack.modules() if hasattr(module, "feature_map")]
    for place, layer in enumerate(layers):
        layer.feature_map.number(place)


#: By ``--attention``.
FEATURE_MAPS: Dict[str, Type[FeatureMap]] = {
    "elu": FeatureMap,
    "softmax_features": SoftmaxFeatures,
    "favor": Favor,
}
