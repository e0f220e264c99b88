"""FAVOR+: the random features of the Performer.

Choromanski et al. 2021, arXiv 2009.14794.
"""

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.base import register_attention
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.layer import LinearAttention, LinearFlags
from fairseq_posenc.attention.linear.random_features import (
    DrawnInFloat32,
    Exponents,
    LargestExponent,
    PositiveFeatures,
    orthogonal_rows,
    positive_pair,
    projected,
)
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32, view_as_stack
from fairseq_posenc.encodings import Encoding
from fairseq_posenc.encodings.base import Stack
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting

#: Bound on exponents where there is no stabiliser: exp(20) · exp(20), squared in a gradient, is
#: still finite in float32.
LARGEST_EXPONENT = 20.0

#: The kernels and their default ε.
FAVOR_KERNELS = {"softmax": 1e-4, "hyperbolic": 1e-4, "relu": 1e-3}


@dataclass
class FavorFlags(LinearFlags):
    """Flags of FAVOR+."""

    favor_kernel: Optional[str] = setting(
        "softmax",
        "features of --attention favor: softmax, exp(ω·x - |x|²/2); hyperbolic, exp(ω·x - |x|²/2) "
        "and exp(-ω·x - |x|²/2) for half as many ω, which estimate the same kernel with less "
        "variance; or relu, relu(ω·x)",
        choices=FAVOR_KERNELS,
    )
    favor_features: Optional[int] = setting(
        None,
        "number of random features per head (default: D ln D for heads of D channels, rounded down "
        "to an even number)",
        at_least=1,
        at_most=65536,
    )
    favor_epsilon: Optional[float] = setting(
        None,
        "added to every feature of --attention favor (default: "
        + ", ".join(f"{value:g} for {name}" for name, value in FAVOR_KERNELS.items())
        + "); 0 keeps softmax features of queries and keys of large norm from vanishing",
        at_least=0,
        at_most=1.0,
    )
    favor_seed: Optional[int] = setting(1, "seed of the random features", role="training")
    favor_redraw: Optional[int] = setting(
        0,
        "number of updates between redraws of the random features; 0 for no redraws. Checkpoints "
        "from before and after a redraw cannot be averaged, and a run that starts from the "
        "checkpoint of another run draws its own features",
        role="training",
        at_least=0,
    )
    favor_redraw_until: Optional[int] = setting(
        0,
        "last update at which the features are redrawn; 0 for no limit",
        role="training",
        at_least=0,
        needs={"favor_redraw": None},
    )


class Favor(DrawnInFloat32, FeatureMap):
    """FAVOR+: random features whose products are unbiased estimates of exp(q·k/√D).

    Choromanski et al. 2021, arXiv 2009.14794, Lemma 1 and section 2.4.  With x = q/D^¼ or k/D^¼,
    orthogonal random ω and a small ε:

        φ(x) = (exp(ω·x - |x|²/2 - c) + ε) / √M      or, for --favor-kernel relu,     relu(ω·x) + ε

    With --favor-kernel hyperbolic, the second half of the ω is the first half negated (SM^hyp+,
    Lemma 2).

    Without ε, the stabiliser c would cancel.  For a query, c is the maximum of ω·x over ω.  All
    keys share the maximum over keys and ω, except in causal attention, where it would leak later
    keys; c is then 0 for keys, and exponents are clamped to 20.  Where |x|²/2 exceeds -log ε, the
    features are close to ε and attention is nearly uniform.  With ε = 0, c is the maximum of
    ω·x - |x|²/2 instead: c cancels, and features of queries and keys of large norm do not vanish.
    Causal attention then needs a smaller ``--linear-epsilon``.
    """

    projection: Tensor
    drawn_buffer = "projection"

    def __init__(self, head_dim: int, options: Options, side: str) -> None:
        super().__init__(head_dim, options, side)
        self.kernel = str(options.favor_kernel)
        epsilon = options.favor_epsilon
        self.epsilon = float(FAVOR_KERNELS[self.kernel] if epsilon is None else epsilon)
        self.seed = int(options.favor_seed)
        self.redraw_every = int(options.favor_redraw)
        self.redraw_until = int(options.favor_redraw_until)
        self.side, self.layer = side, 0
        self.drawn: Optional[int] = None
        self.register_buffer("projection", torch.empty(self.size(head_dim, options), head_dim))
        self.redraw(0)

    @classmethod
    def is_positive(cls, options: Options) -> bool:
        """False for the ReLU kernel without ε, whose features are 0 for half of the inputs."""
        return options.favor_kernel != "relu" or options.favor_epsilon != 0

    @staticmethod
    def size(head_dim: int, options: Options) -> int:
        """M: ``favor_features`` if set, else D ln D rounded down to an even number."""
        number = options.favor_features
        return int(number) if number else max(2, 2 * int(head_dim * math.log(head_dim) / 2))

    @torch.no_grad()
    def redraw(self, count: int) -> None:
        """Draw projection number *count*, counted from 0; every process draws the same."""
        key = f"{self.seed} {self.side} {self.layer} {count}"
        rows, columns = self.projection.shape
        in_pairs = self.kernel == "hyperbolic"
        drawn = orthogonal_rows(rows // 2 if in_pairs else rows, columns, key)
        self.projection.copy_(torch.cat((drawn, -drawn)) if in_pairs else drawn)
        self.drawn = count

    def set_num_updates(self, num_updates: int) -> None:
        """Redraw the features if due; fairseq calls this before every update."""
        if not self.redraw_every:
            return
        last = min(num_updates, self.redraw_until) if self.redraw_until else num_updates
        if last // self.redraw_every != self.drawn:
            self.redraw(last // self.redraw_every)

    def set_layer_index(self, layer: int) -> None:
        """Draw random features that differ from those of the other layers of the stack."""
        self.layer = layer
        self.redraw(0)

    def queries(self, q: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """φ, (B, H, T, M), of queries *q* (B, H, T, D)."""
        return self._features(q, None, True)

    def stabiliser(self, k: Tensor, hidden: Optional[Tensor], size: int) -> Optional[Tensor]:
        """c, (B, H, 1, 1): the maximum over all keys that are not hidden; None for ReLU."""
        if self.kernel == "relu":
            return None
        projection, norms = self.projection.to(AT_LEAST_FLOAT32[k.dtype]), not self.epsilon > 0
        highest: Tensor = LargestExponent.apply(k, hidden, projection, norms, size)
        return highest if hidden is None else highest.masked_fill(highest == float("-inf"), 0.0)

    def keys(
        self, k: Tensor, stabiliser: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """ϕ, (B, H, S, M), of keys *k* (B, H, S, D)."""
        return self._features(k, stabiliser, False)

    def of_token(
        self, q: Tensor, k: Tensor, positions: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tensor]:
        """φ and ϕ of a query and a key (B, H, 1, D), computed together where possible."""
        both = view_as_stack((q, k))
        if both is None or (self.epsilon == 0 and self.kernel != "relu"):
            return super().of_token(q, k, positions)
        if self.kernel == "relu":
            pair = self._features(both, None, False)
        else:
            projection = self.projection.to(q.dtype)
            pair = positive_pair(both, projection, self.epsilon, LARGEST_EXPONENT)
        return pair[0], pair[1]

    def _features(self, x: Tensor, stabiliser: Optional[Tensor], per_query_max: bool) -> Tensor:
        """Features (B, H, T, M) of *x*; if *per_query_max*, c is the maximum of each query."""
        projection = self.projection.to(x.dtype)
        if self.kernel == "relu":  # relu(ω·x) + ε, in place
            features = projected(x, projection).add_(self.epsilon)
            return F.threshold(features, self.epsilon, self.epsilon, True)
        norms = self.epsilon > 0 or not per_query_max
        # without ε, c is far below 0 for large keys, and the features of padding would be infinite
        free = per_query_max or (stabiliser is not None and self.epsilon > 0)
        limit = math.inf if free else LARGEST_EXPONENT
        form = Exponents(norms, per_query_max, limit, self.epsilon)
        return PositiveFeatures.apply(x, stabiliser, projection, form)

    def extra_repr(self) -> str:
        features = self.projection.size(0)
        return f"kernel={self.kernel}, features={features}, redraw={self.redraw_every}"

    def _load_from_state_dict(self, state: Dict[str, Tensor], prefix: str, *args: Any) -> None:
        rows, saved = len(self.projection), state.get(f"{prefix}projection", self.projection)
        if len(saved) != rows:
            raise UsageError(
                f"--favor-features {rows}: the checkpoint has {len(saved)} random features "
                f"per head ({prefix}projection); give --favor-features {len(saved)}"
            )
        super()._load_from_state_dict(state, prefix, *args)
        self.drawn = None  # unknown; with redraws enabled, the next update redraws


@register_attention(
    "favor",
    paper="Choromanski et al. 2021, arXiv 2009.14794",
    summary="linear, with random features that approximate the softmax kernel (Performer)",
    flags=FavorFlags,
)
class Performer(LinearAttention):
    """Linear attention with the features of FAVOR+; arguments as for :class:`LinearAttention`."""

    map_class = Favor

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse an odd number of hyperbolic features, and contradictory flags of redraws."""
        super().check(options, encodings, stacks)
        if options.favor_kernel == "hyperbolic" and (options.favor_features or 0) % 2:
            raise UsageError(
                f"--favor-features {options.favor_features}: --favor-kernel hyperbolic has "
                "features in pairs; give an even number"
            )
        if options.favor_redraw_until and options.favor_redraw_until < options.favor_redraw:
            raise UsageError(
                f"--favor-redraw-until {options.favor_redraw_until}: is before the first redraw, "
                f"at update {options.favor_redraw}; give a later update, or --favor-redraw 0"
            )
        if options.favor_redraw and option(options, "store_ema", False):
            raise UsageError(
                f"--favor-redraw {options.favor_redraw}: --store-ema would average random features "
                "of different draws; drop one of the two flags"
            )

    @classmethod
    def size_flags(cls, options: Options, side: str) -> str:
        """``--favor-features`` if given, else the flags that determine the default number."""
        number = options.favor_features
        return "--favor-features" if number else super().size_flags(options, side)
