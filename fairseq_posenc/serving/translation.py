"""Translation with fairseq's own beam search."""

from argparse import Namespace
from typing import Any, Dict, List

import torch

from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.serving.inputs import batches_by_tokens, numbers_of
from fairseq_posenc.serving.translate import Beam, Hypothesis, Tokens


class FairseqEngine:
    """fairseq's beam search of one model.

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
        dataset = self._task.build_dataset_for_inference(encoded, [len(each) for each in encoded])
        found: List[List[Hypothesis]] = [[] for _ in sources]
        for batch in batches_by_tokens(
            list(map(len, encoded)), beam.batch, list(map(len, prefixes))
        ):
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
