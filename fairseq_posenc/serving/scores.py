"""Log-probabilities of tokens: of texts, by fairseq's own scorer, and of what follows a text."""

import math
from argparse import Namespace
from typing import Any, List, NamedTuple, Sequence

import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.serving.inputs import batches_by_tokens, tokens_of

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
        dataset: a data set of fairseq, with targets.
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


class Continuation(NamedTuple):
    """The score of a text that follows another.

    Args:
        tokens: its symbols.
        log_probabilities: natural logarithms, of each symbol given all before it.
        greedy: whether each of them is the most probable symbol at its place.
    """

    tokens: List[str]
    log_probabilities: List[float]
    greedy: bool

    @property
    def total(self) -> float:
        """Log-probability of the continuation."""
        return math.fsum(self.log_probabilities)

    @property
    def mean(self) -> float:
        """Log-probability by token."""
        return self.total / len(self.tokens)


def first_new(context: Tensor, whole: Tensor) -> int:
    """The number of tokens that a text (T,) and its beginning (S,) have in common at the start.

    Subwords of the beginning may be others where something follows it; those that change belong to
    the continuation.

    >>> first_new(torch.tensor([5, 6, 7]), torch.tensor([5, 6, 8, 9]))
    2
    """
    shared = min(len(context), len(whole))
    differs = context[:shared].ne(whole[:shared]).nonzero()
    return int(differs[0]) if len(differs) else shared


@torch.no_grad()
def continuations_of(
    loaded: Loaded, wholes: Sequence[Tensor], starts: Sequence[int], longest: int
) -> List[Continuation]:
    """Score the ends of texts, in their order.

    Args:
        wholes: token numbers (T,) of each text, </s> included.
        starts: the place of the first token to score in each.
        longest: tokens that the model accepts; longer texts lose their beginning.

    Raises:
        UsageError: a continuation has no token, or more than the model accepts.
    """
    cut: List[Tensor] = []
    counts: List[int] = []
    for number, (whole, start) in enumerate(zip(wholes, starts)):
        counts.append(len(whole) - 1 - start)
        if not 0 < counts[-1] < longest:
            raise UsageError(
                f"score_continuations: continuation {number} of the list has {counts[-1]} tokens, "
                f"and the model accepts 1 to {longest - 1}"
            )
        cut.append(whole[-longest:])
    lengths = list(map(len, cut))
    dataset: Any = loaded.task.build_dataset_for_inference(cut, lengths)
    found: List[Any] = [None] * len(cut)
    for batch in batches_by_tokens(lengths, BATCH):
        sample = loaded.move(dataset.collater([dataset[number] for number in batch]))
        output = loaded.model(**sample["net_input"])
        log_probabilities = loaded.model.get_normalized_probs(output, log_probs=True)
        for row, number in zip(log_probabilities, batch):
            # row T predicts token T, because the input begins with one more
            end = lengths[number] - 1
            scored = row[end - counts[number] : end]
            tokens = cut[number][end - counts[number] : end].to(scored.device)
            found[number] = Continuation(
                tokens_of(loaded.task.target_dictionary, tokens),
                scored.gather(1, tokens[:, None])[:, 0].tolist(),
                bool(scored.argmax(1).eq(tokens).all()),
            )
    return found
