"""Translation models of model folders, from Python."""

from typing import List, Optional, Sequence

import numpy as np
from fairseq.data import LanguagePairDataset

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.engine import MAX_LENGTH, Beam
from fairseq_posenc.serving.fairseq_engine import FairseqEngine
from fairseq_posenc.serving.inputs import FolderModel, check_texts, numbers_of, refuse_too_long
from fairseq_posenc.serving.model_folder import ModelFolder
from fairseq_posenc.serving.scores import BATCH, Scores, scores_of
from fairseq_posenc.serving.translate import Format, Translator


class TranslationModel(FolderModel):
    """A translation model of a model folder; arguments as for :class:`FolderModel`."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        super().__init__(folder, device)
        self._engine = FairseqEngine(self._loaded)

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
        for name, value in (("beam", beam), ("max_length", max_length)):
            if value is not None and value < 1:
                raise UsageError(f"translate: {name} {value}: must be at least 1")
        search = self._folder.search
        penalty = search.lenpen if lenpen is None else lenpen
        settings = Beam(beam or search.beam, penalty, 1, max_length or MAX_LENGTH, BATCH)
        translator = Translator(self._text, self._engine, settings, Format())
        return list(translator.translate(texts, max(len(texts), 1)))

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
        task = self.task
        sides = (
            [numbers_of(task.source_dictionary, self._text.source(text), True) for text in sources],
            [numbers_of(task.target_dictionary, self._text.target(text), True) for text in targets],
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
