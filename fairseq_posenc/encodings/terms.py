"""The content-dependent terms of a layer: those of all its encodings, summed."""

from typing import Any, Dict, Iterable, List, Optional, cast

from torch import Tensor, nn

from fairseq_posenc.encodings.base import LayerTerms


class PositionTerms(nn.ModuleDict):
    """Content-dependent terms by the name of their encoding, and their sum.

    Args:
        terms: at least one.
        with_vectors: names of those that have distance vectors, in order.
    """

    def __init__(self, terms: Dict[str, LayerTerms], with_vectors: List[str]) -> None:
        super().__init__(terms)
        self.with_vectors = with_vectors
        self.needs_weights = any(term.needs_weights for term in terms.values())

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        scale: float,
        query_positions: Tensor,
        key_positions: Tensor,
        vectors: Optional[Tensor],
        memory: Dict[str, Tensor],
    ) -> Tensor:
        """Logits (B, H, T, S), scaled.

        Args:
            q: queries (B, H, T, D), without anything that other encodings do to them.
            k: keys (B, H, S, D), likewise.
            scale: factor on q·k.
            query_positions: (1|B, T).
            key_positions: (1|B, S).
            vectors: (N, L, H·D) of the N terms that have them, for L distances; or None.
            memory: projected vectors of earlier steps; filled here.
        """
        for name, own in zip(self.with_vectors, () if vectors is None else vectors):
            if name not in memory or memory[name].size(-2) != own.size(0):
                term: Any = self[name]
                memory[name] = term.project(own)
        given = (q, k, scale, query_positions, key_positions)
        logits = [term(*given, memory.get(name)) for name, term in self.items()]
        return sum(logits[1:], logits[0])

    def more_values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """What weights (B, H, T, S), after dropout, give beside the values; (B, H, T, D)."""
        terms = cast(Iterable[LayerTerms], self.values())
        given = [term.values(weights, query_positions, key_positions) for term in terms]
        found = [value for value in given if value is not None]
        return sum(found[1:], found[0])
