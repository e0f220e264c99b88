"""The sum of the content-dependent terms of a layer's encodings."""

from typing import Any, Dict, Iterable, List, Optional, cast

from torch import Tensor, nn

from fairseq_posenc.encodings.base import Content, ContentBias


class ContentBiasSum(nn.ModuleDict):
    """Sum of content-dependent terms, with the terms keyed by encoding name.

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
            content: inputs of the terms.
            vectors: (N, L, H·D) for the N terms that have them and L distances; or None.
            projected: cache of projected vectors by name, updated in place.
        """
        for name, unprojected in zip(self.with_vectors, () if vectors is None else vectors):
            if name not in projected or projected[name].size(-2) != unprojected.size(0):
                term: Any = self[name]
                projected[name] = term.project(unprojected)
        logits = [term(content, projected.get(name)) for name, term in self.items()]
        return sum(logits[1:], logits[0])

    def relative_values(self, content: Content, weights: Tensor) -> Tensor:
        """Sum of relative values (B, H, T, D) for weights (B, H, T, S) after dropout."""
        terms = cast(Iterable[ContentBias], self.values())
        given = [term.relative_values(content, weights) for term in terms]
        found = [value for value in given if value is not None]
        return sum(found[1:], found[0])
