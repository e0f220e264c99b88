"""Log-probabilities of the tokens of texts, by fairseq's own scorer."""

import math
from argparse import Namespace
from typing import Any, List, NamedTuple, Sequence

import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from fairseq_posenc.serving.batches import batches_by_tokens
from fairseq_posenc.serving.loaded import Loaded, tokens_of

#: Largest number of tokens in a batch.
BATCH = 4000


class Scores(NamedTuple):
    """Log-probabilities of the tokens of a text.

    Args:
        tokens: the symbols that are predicted.
        log_probabilities: natural logarithms, of each symbol given what the model sees of the text.
    """

    tokens: List[str]
    log_probabilities: List[float]

    @property
    def total(self) -> float:
        """Log-probability of the text."""
        return math.fsum(self.log_probabilities)

    @property
    def perplexity(self) -> float:
        """Perplexity by token; 1 of an empty text."""
        return math.exp(-self.total / max(len(self.tokens), 1))


@torch.no_grad()
def scores_of(loaded: Loaded, dataset: FairseqDataset, lengths: Sequence[int]) -> List[Scores]:
    """The scores of a data set's targets, in its order.

    Args:
        loaded: the model.
        dataset: of fairseq, with targets.
        lengths: largest number of tokens in each of its items.
    """
    dictionary = loaded.task.target_dictionary
    scorer = loaded.task.build_generator([loaded.model], Namespace(score_reference=True))
    found: List[Scores] = [Scores([], [])] * len(lengths)
    for batch in batches_by_tokens(lengths, BATCH):
        sample = loaded.move(dataset.collater([dataset[number] for number in batch]))
        outputs: List[Any] = scorer.generate([loaded.model], sample)
        for number, (scored,) in zip(sample["id"].tolist(), outputs):
            values: Tensor = scored["positional_scores"]
            found[number] = Scores(tokens_of(dictionary, scored["tokens"]), values.tolist())
    return found
