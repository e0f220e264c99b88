"""Interface of content-dependent terms: logits from queries, keys and distances, in every layer.

Shaw et al., arXiv 1803.02155; Transformer-XL, Dai et al., arXiv 1901.02860; DeBERTa, He et al.,
arXiv 2006.03654.  Shapes as in :mod:`fairseq_posenc.encodings.base`.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Union

import torch
from torch import Tensor, nn

from fairseq_posenc.encodings.base import Hook, Places, Stack
from fairseq_posenc.flags.options import Options


class DistanceVectors(Hook, nn.Module):
    """A vector for every distance, shared by all layers of a stack and owned by the stack."""

    def forward(self, distances: Tensor) -> Tensor:
        """Vectors (N, H·D) of *distances* (N), int64, key minus query, in tokens."""
        raise NotImplementedError


@dataclass
class Content:
    """Inputs of the content-dependent terms of one layer; products are computed on demand."""

    x: Tensor  # input of the attention for the new tokens, (B, T, C)
    q: Tensor  # queries (B, H, T, D), before other encodings transform them
    k: Tensor  # keys (B, H, S, D), before other encodings transform them
    scale: float  # factor on q·k, and on all products with q or k in the terms
    places: Places  # positions of queries and keys
    padding_mask: Optional[Tensor] = None  # (B, S), True at padding
    # results of ContentBias.key_states for all keys, (B, H, S, …) each
    key_states: Dict[str, Tensor] = field(default_factory=dict)
    _products: Optional[Tensor] = None

    @property
    def distances(self) -> Optional[Tensor]:
        """Distances, key minus query, (1|B, 1, T, S); None if they are differences of indices."""
        distances = self.places.distances
        return None if distances is None else distances.unsqueeze(1)

    @property
    def products(self) -> Tensor:
        """scale · q kᵀ, (B, H, T, S), computed on first use and once per layer."""
        if self._products is None:
            self._products = torch.matmul(self.q * self.scale, self.k.transpose(-2, -1))
        return self._products


class ContentBias(Hook, nn.Module):
    """Content-dependent terms of one layer; every layer has separate parameters."""

    hook = "content"
    #: True if the terms are products with queries, so that a factor on q·k applies to them, too
    is_product = True

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.needs_weights = self.changes_values(options) is not None

    @classmethod
    def changes_values(cls, options: Options) -> Optional[str]:
        """The flag with which :meth:`relative_values` returns a tensor, or None if it never does.

        By default, ``--position-encoding`` if the class defines :meth:`relative_values`.
        """
        defined = cls.relative_values is not ContentBias.relative_values
        return "--position-encoding" if defined else None

    def key_states(self, x: Tensor) -> Dict[str, Tensor]:
        """Further tensors (B, H, T, …), by name, for the keys of *x* (B, T, C); by default none.

        They are cached with the keys, and passed on in :attr:`Content.key_states`.  Encodings must
        not use each other's names.
        """
        return {}

    def project(self, vectors: Tensor) -> Tensor:
        """Project distance *vectors* (N, H·D) for :meth:`forward`: (…, N, D or H·D).

        The result is cached between the steps of incremental decoding.
        """
        return vectors

    def forward(self, content: Content, vectors: Optional[Tensor] = None) -> Tensor:
        """Logits (B, H, T, S), scaled.

        Args:
            content: queries, keys, positions and the other inputs.
            vectors: result of :meth:`project` for all distances from -n to n, where no distance
                exceeds n; None if the encoding has no :class:`DistanceVectors`.
        """
        raise NotImplementedError

    def tables(self) -> Dict[str, Tensor]:
        """Vectors added to keys, as ``keys``, and to values, as ``values``: (N, D) or (H, N, D).

        There is one for each distance from -K to K, or from -K to 0 in a causal stack.  By default
        there are no such vectors.
        """
        return {}

    def relative_values(self, content: Content, weights: Tensor) -> Optional[Tensor]:
        """A term (B, H, T, D) added to the output of attention, or None, as by default.

        Shaw et al., arXiv 1803.02155, Eq. 3; *weights* (B, H, T, S) are weights after dropout.
        """
        return None

    def added_values(self, content: Content) -> Optional[Tensor]:
        """Vectors a_j, (1|B, 1|H, S, D), to add to the values if there is a single query, T = 1.

        Σ_j w_j v_j + Σ_j w_j a_j = Σ_j w_j (v_j + a_j).  This lets a decoding step use the fused
        kernel, at the price of one vector per key.  If the result is None, as by default, the step
        calls :meth:`relative_values`.
        """
        return None


class ContentBiasSum(nn.ModuleDict):
    """Sum of content-dependent *terms*; *with_vectors* names those with distance vectors."""

    def __init__(self, terms: Dict[str, ContentBias], with_vectors: List[str]) -> None:
        super().__init__(terms)
        self.with_vectors = with_vectors
        #: names of the terms that change values, and therefore need the attention weights
        self.of_values = [name for name, term in terms.items() if term.needs_weights]
        self.needs_weights = bool(self.of_values)

    def key_states(self, x: Tensor) -> Dict[str, Tensor]:
        """The key states of all terms for input *x* (B, T, C), (B, H, T, …) each."""
        terms: Any = self.values()
        return {name: part for term in terms for name, part in term.key_states(x).items()}

    def forward(
        self,
        content: Content,
        vectors: Optional[Tensor],
        projected: Dict[str, Tensor],
        factor: Union[float, Tensor, None] = None,
    ) -> Tensor:
        """Logits (B, H, T, S), scaled.

        *vectors* (N, L, H·D) are the vectors of N terms at L distances; *projected* is a cache of
        their projections by name, filled in place; *factor*, (1|B, 1, 1|T, 1) or a number,
        multiplies products with queries.
        """
        terms: Any = self
        for name, unprojected in zip(self.with_vectors, () if vectors is None else vectors):
            if name not in projected or projected[name].size(-2) != unprojected.size(0):
                projected[name] = terms[name].project(unprojected)
        logits, shape = [], (*content.q.shape[:3], content.k.size(2))
        for name, term in terms.items():
            part = term(content, projected.get(name))
            term.check_shape("forward", part, "(B, H, T, S)", *shape)
            scaled = factor is not None and term.is_product
            logits.append((part * factor).type_as(part) if scaled else part)
        return sum(logits[1:], logits[0])

    def relative_values(self, content: Content, weights: Tensor) -> Tensor:
        """Sum of relative values (B, H, T, D) for weights (B, H, T, S) after dropout."""
        terms: Any = self
        outputs = [terms[name].relative_values(content, weights) for name in self.of_values]
        present = [output for output in outputs if output is not None]
        return sum(present[1:], present[0])

    def added_values(self, content: Content) -> Optional[Tensor]:
        """Sum (1|B, 1|H, S, D) of the added values, or None if a term needs weights."""
        if content.q.size(2) > 1:
            return None
        terms: Any = self
        added = [terms[name].added_values(content) for name in self.of_values]
        return None if any(each is None for each in added) else sum(added[1:], added[0])
