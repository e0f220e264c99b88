"""Texts with a gap and candidates for it, each masked in the place of the gap."""

from typing import Any, Dict, List, Sequence

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset, data_utils
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError


class CandidateDataset(FairseqDataset):
    """Each example is one text with every candidate masked in turn, the right one first.

    Args:
        left: what stands before the gap, each ending in </s>, which is dropped.
        right: what stands after it, ending in </s>.
        candidates: for each place among the candidates, those of all examples, ending in </s>;
            with nothing else, the example has no further candidate.
        dictionary: of the model, with ``<mask>``.
        seed: of the order of the examples.
        where: name of the data, for messages.

    Raises:
        UsageError: an example has fewer than two candidates, with its number.
    """

    def __init__(
        self,
        left: Sequence[Tensor],
        right: Sequence[Tensor],
        candidates: Sequence[Sequence[Tensor]],
        dictionary: Dictionary,
        seed: int,
        where: str,
    ) -> None:
        self._pad = dictionary.pad()
        mask = dictionary.index("<mask>")
        self.rows: List[Dict[str, List[Tensor]]] = []
        for number, (before, after) in enumerate(zip(left, right)):
            start = torch.cat([before.new_tensor([dictionary.bos()]), before[:-1]])
            found = [tokens[:-1] for tokens in (part[number] for part in candidates)]
            if len(found[0]) == 0 or sum(len(tokens) > 0 for tokens in found) < 2:
                raise UsageError(
                    f"{where}: example {number + 1} has fewer than two candidates; give the right "
                    "one and at least one other"
                )
            row: Dict[str, List[Tensor]] = {"source": [], "target": []}
            for tokens in filter(len, found):
                gap = torch.full_like(tokens, mask)
                row["source"].append(torch.cat([start, gap, after]))
                rest = [torch.full_like(part, self._pad) for part in (start, after)]
                row["target"].append(torch.cat([rest[0], tokens, rest[1]]))
            self.rows.append(row)
        self.sizes = np.array([max(map(len, row["source"])) for row in self.rows])
        with data_utils.numpy_seed(seed):
            self._order = np.random.permutation(len(self.rows))

    def __getitem__(self, index: int) -> Dict[str, Any]:
        return {"id": index, **self.rows[index]}

    def __len__(self) -> int:
        return len(self.rows)

    def num_tokens(self, index: int) -> int:
        """Tokens of all rows of an example."""
        return int(self.sizes[index]) * len(self.rows[index]["source"])

    def size(self, index: int) -> int:
        """Tokens of the longest row of an example."""
        return int(self.sizes[index])

    def ordered_indices(self) -> np.ndarray:
        """The order of the examples."""
        return self._order

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """A batch of B examples with R rows in all: tokens (R, T), targets (R, T), counts (B,)."""
        if not samples:
            return {}
        rows = {
            name: data_utils.collate_tokens(
                [row for sample in samples for row in sample[name]], self._pad
            )
            for name in ("source", "target")
        }
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(rows["source"].ne(self._pad).sum()),
            "net_input": {"src_tokens": rows["source"]},
            "target": rows["target"],
            "counts": torch.tensor([len(sample["source"]) for sample in samples]),
        }
