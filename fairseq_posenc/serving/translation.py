"""Translation with fairseq's own beam search, and batches of texts of similar length."""

from argparse import Namespace
from typing import Any, Dict, List, Optional, Sequence

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.serving.translate import Beam, Hypothesis, Tokens


class FairseqEngine:
    """Translates with one model by fairseq's beam search.

    Args:
        loaded: a translation model.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded, self._task = loaded, loaded.task
        self.longest = dict(zip(("source", "target"), loaded.model.max_positions()))

    @torch.no_grad()
    def translate(
        self, sources: List[Tokens], prefixes: List[Tokens], beam: Beam
    ) -> List[List[Hypothesis]]:
        """See :class:`~fairseq_posenc.serving.translate.Engine`."""
        options = Namespace(
            beam=beam.size, lenpen=beam.penalty, nbest=beam.n_best, max_len_b=beam.max_length
        )
        generator = self._task.build_generator([self._loaded.model], options)
        encoded = [numbers_of(self._task.source_dictionary, each, True) for each in sources]
        lengths = list(map(len, encoded))
        dataset = self._task.build_dataset_for_inference(encoded, lengths)
        found: List[List[Hypothesis]] = [[] for _ in sources]
        for batch in batches_by_tokens(lengths, beam.batch, list(map(len, prefixes))):
            sample = dataset.collater([dataset[number] for number in batch])
            order = sample["id"].tolist()
            sample["net_input"] = self._loaded.move(sample["net_input"])
            start = [numbers_of(self._task.target_dictionary, prefixes[n]) for n in order]
            prefix = torch.stack(start).to(self._loaded.device) if len(start[0]) else None
            outputs = generator.generate([self._loaded.model], sample, prefix_tokens=prefix)
            for number, hypotheses in zip(order, outputs):
                found[number] = [self._hypothesis(each) for each in hypotheses[: beam.n_best]]
        return found

    def _hypothesis(self, found: Dict[str, Any]) -> Hypothesis:
        dictionary = self._task.target_dictionary
        numbers = [number for number in found["tokens"].tolist() if number != dictionary.eos()]
        return Hypothesis([dictionary[number] for number in numbers], float(found["score"]))


def numbers_of(dictionary: Dictionary, tokens: Tokens, end: bool = False) -> Tensor:
    """The numbers (T,) of *tokens* in a dictionary, followed by </s> if *end*."""
    numbers = [dictionary.index(token) for token in tokens]
    return torch.tensor(numbers + ([dictionary.eos()] if end else []), dtype=torch.long)


def batches_by_tokens(
    lengths: Sequence[int], limit: int, groups: Optional[Sequence[int]] = None
) -> List[List[int]]:
    """Batches of texts of similar length; a batch is a list of indices of texts.

    >>> batches_by_tokens([5, 2, 3, 9], 6)
    [[1, 2], [0], [3]]

    Args:
        lengths: the number of tokens of each text.
        limit: largest number of tokens in a batch, with padding; a longer text is a batch alone.
        groups: the group of each text; only texts of the same group share a batch.
    """
    of = groups or [0] * len(lengths)
    batches: List[List[int]] = []
    for number in sorted(range(len(lengths)), key=lambda n: (of[n], lengths[n])):
        last = batches[-1] if batches else []
        if last and of[last[0]] == of[number] and (len(last) + 1) * lengths[number] <= limit:
            last.append(number)
        else:
            batches.append([number])
    return batches
