"""Translation with fairseq's own beam search: the engine, and models of model folders in Python."""

from argparse import Namespace
from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import torch
from fairseq.data import LanguagePairDataset

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.serving.documents import DocumentTranslator
from fairseq_posenc.serving.inputs import (
    FolderModel,
    batches_by_tokens,
    check_texts,
    load,
    numbers_of,
    refuse_below_one,
    refuse_too_long,
    tokens_of,
)
from fairseq_posenc.serving.model_folder import ModelFolder, context_of
from fairseq_posenc.serving.preparation import Preparation
from fairseq_posenc.serving.scores import BATCH, Scores, scores_of
from fairseq_posenc.serving.translate import (
    MAX_LENGTH,
    Beam,
    Format,
    Hardware,
    Hypothesis,
    Tokens,
    Translator,
)
from fairseq_posenc.text.documents import Context


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
        numbers = found["tokens"]
        tokens = tokens_of(dictionary, numbers[numbers.ne(dictionary.eos())])
        return Hypothesis(tokens, float(found["score"]))


def engine_of(folder: ModelFolder, hardware: Hardware) -> FairseqEngine:
    """The checkpoint of a model folder as an engine.

    Raises:
        UsageError: the checkpoint cannot be loaded, or is no translation model.
    """
    if folder.task != "translation":
        raise UsageError(
            f"--model {folder.path}: holds a model of --task {folder.task}; give one of a "
            "translation model"
        )
    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    return FairseqEngine(load(folder, hardware.device))


class TranslationModel(FolderModel):
    """A translation model of a model folder; arguments as for :class:`FolderModel`."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        super().__init__(folder, device)
        self._engine = FairseqEngine(self._loaded)

    @property
    def longest(self) -> Dict[str, int]:
        """The longest source and target that the model accepts, in tokens with ``</s>``."""
        return self._engine.longest

    @property
    def preparation(self) -> Preparation:
        """The way from raw text to the tokens of the model."""
        return self._text

    def translate(
        self,
        texts: Sequence[str],
        beam: Optional[int] = None,
        lenpen: Optional[float] = None,
        max_length: Optional[int] = None,
    ) -> List[str]:
        """Translate texts; one that is empty or too long gives an empty translation.

        Args:
            texts: raw text, a sentence each.
            beam: number of hypotheses, by default as in the folder.
            lenpen: exponent of the length by which scores are divided, by default as in the folder.
            max_length: longest translation in tokens, by default 200, as for fairseq-generate.

        Raises:
            UsageError: *texts* is no list of texts, or a number is below 1.
        """
        check_texts(texts, "translate")
        settings = self._beam("translate", beam, lenpen, max_length)
        translator = Translator(self._text, self._engine, settings, Format())
        return list(translator.translate(texts, max(len(texts), 1)))

    def translate_documents(
        self,
        documents: Sequence[Sequence[str]],
        context: Optional[int] = None,
        beam: Optional[int] = None,
        lenpen: Optional[float] = None,
        max_length: Optional[int] = None,
    ) -> List[List[str]]:
        """Translate documents, a list of sentences each; see :class:`DocumentTranslator`.

        Args:
            documents: raw text, a sentence each; none is empty.
            context: sentences before a sentence that the model is given with it, by default as in
                the folder.
            beam: see :meth:`translate`, as for the others.

        Raises:
            UsageError: *documents* is no list of lists of texts, or the folder names no context.
        """
        for document in documents:
            check_texts(document, "translate_documents")
        settings = self._beam("translate_documents", beam, lenpen, max_length)
        given = (
            None
            if context is None
            else (self._folder.context or Context())._replace(sentences=context)
        )
        chosen = context_of(self._folder, given, "translate_documents: context")
        translator = DocumentTranslator(self._text, self._engine, settings, chosen)
        lines = [line for document in documents for line in (*document, "")]
        found = iter(list(translator.translate(lines, max(len(lines), 1))))
        return [[next(found) for _ in (*document, "")][:-1] for document in documents]

    def _beam(
        self, function: str, size: Optional[int], lenpen: Optional[float], longest: Optional[int]
    ) -> Beam:
        refuse_below_one(function, beam=size, max_length=longest)
        search = self._folder.search
        penalty = search.lenpen if lenpen is None else lenpen
        return Beam(size or search.beam, penalty, 1, longest or MAX_LENGTH, BATCH)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> List[Scores]:
        """The log-probabilities of given translations, </s> included.

        Args:
            sources: raw text.
            targets: a translation of each.

        Raises:
            UsageError: the lists differ in length, or a text is longer than the model accepts.
        """
        check_texts(sources, "score")
        check_texts(targets, "score")
        if len(sources) != len(targets):
            raise UsageError(
                f"score: there are {len(sources)} sources and {len(targets)} targets; give a "
                "target for each source"
            )
        return self.score_tokens(
            [self._text.source(text) for text in sources],
            [self._text.target(text) for text in targets],
        )

    def score_tokens(self, sources: Sequence[Tokens], targets: Sequence[Tokens]) -> List[Scores]:
        """See :meth:`score`; *sources* and *targets* are tokens, as many of each."""
        task = self.task
        sides = (
            [numbers_of(task.source_dictionary, tokens, True) for tokens in sources],
            [numbers_of(task.target_dictionary, tokens, True) for tokens in targets],
        )
        for side, longest in zip(sides, self._engine.longest.values()):
            refuse_too_long(side, longest, "score")
        sizes = [np.array([len(text) for text in side]) for side in sides]
        dataset = LanguagePairDataset(
            sides[0],
            sizes[0],
            task.source_dictionary,
            sides[1],
            sizes[1],
            task.target_dictionary,
            left_pad_source=task.cfg.left_pad_source,
            left_pad_target=task.cfg.left_pad_target,
            shuffle=False,
        )
        return scores_of(self._loaded, dataset, np.maximum(*sizes).tolist())
