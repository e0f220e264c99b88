"""The content-dependent terms of a layer: those of all its encodings, summed."""

from typing import Any, Dict, Iterable, List, Optional, cast

from torch import Tensor, nn

from fairseq_posenc.encodings.base import Content, ContentBias


class ContentBiasSum(nn.ModuleDict):
    """Content-dependent terms by the name of their encoding, and their sum.

    Args:
        terms: at least one.
        with_vectors: names of those that have distance vectors, in order.
    """

    def __init__(self, terms: Dict[str, ContentBias], with_vectors: List[str]) -> None:
        super().__init__(terms)
        self.with_vectors = with_vectors
        self.needs_weights = any(term.needs_weights for term in terms.values())

    def forward(
        self, content: Content, vectors: Optional[Tensor], projected: Dict[str, Tensor]
    ) -> Tensor:
        """Logits (B, H, T, S), scaled.

        Args:
            content: what the terms may look at.
            vectors: (N, L, H·D) of the N terms that have them, for L distances; or None.
            projected: projected vectors of earlier steps, by name; filled here.
        """
        for name, own in zip(self.with_vectors, () if vectors is None else vectors):
            if name not in projected or projected[name].size(-2) != own.size(0):
                term: Any = self[name]
                projected[name] = term.project(own)
        logits = [term(content, projected.get(name)) for name, term in self.items()]
        return sum(logits[1:], logits[0])

    def relative_values(self, content: Content, weights: Tensor) -> Tensor:
        """Output (B, H, T, D) that weights (B, H, T, S), after dropout, give beside the values."""
        terms = cast(Iterable[ContentBias], self.values())
        given = [term.relative_values(content, weights) for term in terms]
        found = [value for value in given if value is not None]
        return sum(found[1:], found[0])
