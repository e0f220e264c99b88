"""Log-probabilities of what follows a text, for choosing without training (zero-shot)."""

import math
from typing import Any, List, NamedTuple, Sequence

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.batches import batches_by_tokens
from fairseq_posenc.serving.loaded import Loaded, tokens_of
from fairseq_posenc.serving.scores import BATCH


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
        loaded: the language model.
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
