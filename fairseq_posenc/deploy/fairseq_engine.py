"""Translating tokens with fairseq's own beam search."""

from argparse import Namespace
from typing import Any, Dict, List

import torch
from fairseq import checkpoint_utils
from torch import Tensor

from fairseq_posenc.deploy.engine import Beam, Hardware, Hypothesis, Tokens
from fairseq_posenc.deploy.model_folder import ModelFolder
from fairseq_posenc.errors import UsageError


class FairseqEngine:
    """The checkpoint of a model folder.

    Args:
        folder: the model folder.
        hardware: where it computes.

    Raises:
        UsageError: the checkpoint cannot be loaded, or is no translation model.
    """

    def __init__(self, folder: ModelFolder, hardware: Hardware) -> None:
        if folder.task != "translation":
            raise UsageError(
                f"--model {folder.path}: holds a model of --task {folder.task}; give one of a "
                "translation model"
            )
        if hardware.threads:
            torch.set_num_threads(hardware.threads)
        overrides = {"data": folder.path, **languages(folder)}
        models, _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(folder.checkpoint)], arg_overrides=overrides
        )
        self._search = BeamSearch(models[0].eval().to(hardware.device), task, hardware.device)
        self.longest = dict(zip(("source", "target"), models[0].max_positions()))

    def translate(
        self, sources: List[Tokens], prefixes: List[Tokens], beam: Beam
    ) -> List[List[Hypothesis]]:
        """See :class:`~fairseq_posenc.deploy.engine.Engine`."""
        return self._search.translate(sources, prefixes, beam)


def languages(folder: ModelFolder) -> Dict[str, str]:
    """The languages of a model folder, as settings of fairseq's task."""
    text = folder.text
    named = {"source_lang": text.source_lang, "target_lang": text.target_lang}
    return {name: value for name, value in named.items() if value is not None}


class BeamSearch:
    """fairseq's beam search of one model.

    Args:
        model: a translation model in evaluation mode.
        task: its task, with the dictionaries.
        device: where the model is.
    """

    def __init__(self, model: Any, task: Any, device: str = "cpu") -> None:
        self._model, self._task, self._device = model, task, device

    @torch.no_grad()
    def translate(
        self, sources: List[Tokens], prefixes: List[Tokens], beam: Beam
    ) -> List[List[Hypothesis]]:
        """See :class:`~fairseq_posenc.deploy.engine.Engine`."""
        options = Namespace(
            beam=beam.size, lenpen=beam.penalty, nbest=beam.n_best, max_len_b=beam.max_length
        )
        generator = self._task.build_generator([self._model], options)
        encoded = [self._encode(self._task.source_dictionary, each, True) for each in sources]
        dataset = self._task.build_dataset_for_inference(encoded, [len(each) for each in encoded])
        found: List[List[Hypothesis]] = [[] for _ in sources]
        for batch in self._batches(encoded, prefixes, beam.batch):
            sample = dataset.collater([dataset[number] for number in batch])
            order = sample["id"].tolist()
            sample["net_input"] = {
                name: value.to(self._device) for name, value in sample["net_input"].items()
            }
            start = [self._encode(self._task.target_dictionary, prefixes[n]) for n in order]
            prefix = torch.stack(start).to(self._device) if len(start[0]) else None
            outputs = generator.generate([self._model], sample, prefix_tokens=prefix)
            for number, hypotheses in zip(order, outputs):
                found[number] = [self._hypothesis(each) for each in hypotheses[: beam.n_best]]
        return found

    @staticmethod
    def _encode(dictionary: Any, tokens: Tokens, end: bool = False) -> Tensor:
        numbers = [dictionary.index(token) for token in tokens]
        return torch.tensor(numbers + ([dictionary.eos()] if end else []), dtype=torch.long)

    def _hypothesis(self, found: Dict[str, Any]) -> Hypothesis:
        dictionary = self._task.target_dictionary
        numbers = [number for number in found["tokens"].tolist() if number != dictionary.eos()]
        return Hypothesis([dictionary[number] for number in numbers], float(found["score"]))

    @staticmethod
    def _batches(encoded: List[Tensor], prefixes: List[Tokens], limit: int) -> List[List[int]]:
        """Numbers of sentences of similar length, with prefixes of equal length, in batches."""
        order = sorted(range(len(encoded)), key=lambda n: (len(prefixes[n]), len(encoded[n])))
        batches: List[List[int]] = []
        for number in order:
            last = batches[-1] if batches else []
            same = bool(last) and len(prefixes[last[0]]) == len(prefixes[number])
            if same and (len(last) + 1) * len(encoded[number]) <= limit:
                last.append(number)
            else:
                batches.append([number])
        return batches
