"""Models of model folders that answer questions: by a span of a passage, or by a choice."""

from typing import List, NamedTuple, Sequence, Tuple

import torch
from fairseq.data import data_utils
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import option
from fairseq_posenc.packs.comprehension.alignment import surface_reader
from fairseq_posenc.packs.comprehension.answering import candidates_of
from fairseq_posenc.packs.comprehension.data import Split, split_texts
from fairseq_posenc.packs.comprehension.questions import Question, Reading
from fairseq_posenc.packs.comprehension.spans import Answer
from fairseq_posenc.serving.inputs import (
    BATCH,
    batches_by_tokens,
    check_texts,
    load,
    numbers_of,
    refuse_too_long,
)
from fairseq_posenc.serving.model_folder import ModelFolder
from fairseq_posenc.serving.preparation import Preparation

_WINDOWS = 32  # in a batch


class FolderModel:
    """A model of a model folder, as fairseq's ``model`` and ``task``, on a device of PyTorch."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        self._text = Preparation(folder.text, folder.path)
        self._loaded = load(folder, device)
        self.model, self.task = self._loaded.model, self._loaded.task
        self._dictionary = self.task.source_dictionary


class Reply(NamedTuple):
    """What a model says to a question on a passage."""

    text: str  # the answer in the words of the passage, empty if it is said to have none
    no_answer: float  # the probability that there is no answer
    best: List[Answer]  # the possible answers, best first


class SpanModel(FolderModel):
    """A model of ``--task span_prediction``; arguments as for :class:`FolderModel`."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        super().__init__(folder, device)
        self._surface_of = surface_reader(self._text.words, self._dictionary.unk_word)

    def answer(self, pairs: Sequence[Tuple[str, str]]) -> List[Reply]:
        """Answer questions, in their order; long passages are read in windows, as in training.

        Args:
            pairs: a question, and the passage with its answer.

        Raises:
            UsageError: *pairs* is no list of pairs, a text has no token, or a question leaves no
                room for its passage.
        """
        check_texts(pairs, "answer", 2)
        if not pairs:
            return []
        self.task.questions, self.task.passages = [], []
        windows = self.task.windows_of(self._split(pairs), "answer")
        rows = candidates_of(self._loaded, windows, _WINDOWS)
        threshold = self.task.threshold
        return [
            Reply(answered.text(threshold), answered.no_answer_probability, answered.best)
            for _, answered in self.task.answers(rows)
        ]

    def _split(self, pairs: Sequence[Tuple[str, str]]) -> Split:
        questions = [Question(str(number), pair[0], number) for number, pair in enumerate(pairs)]
        reading = Reading([passage for _, passage in pairs], questions, [])
        texts = split_texts(reading, self._text.source, self._surface_of, "answer")
        records, passages, *tokens = texts
        numbers = [[numbers_of(self._dictionary, text) for text in side] for side in tokens]
        return Split(records, passages, *numbers)


class Choice(NamedTuple):
    """The choice of a model."""

    number: int  # its place among the choices, from 0
    probabilities: List[float]  # of each choice


class ChoiceModel(FolderModel):
    """A model of ``--task sentence_ranking``; arguments as for :class:`FolderModel`."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        super().__init__(folder, device)
        settings = self.task.args
        self._init, self._separator = settings.init_token, settings.separator_token
        self._longest_choice = option(settings, "max_option_length")
        self._cuts = str(option(settings, "shorten_method")) == "truncate"
        self._longest = min(int(settings.max_positions), self.model.max_positions())
        self._head = option(settings, "ranking_head_name", "sentence_classification_head")

    @torch.no_grad()
    def choose(self, context: str, choices: Sequence[str]) -> Choice:
        """The best of several choices.

        Args:
            context: what the choices belong to, in the recipes a passage.
            choices: such as a question with an answer each.  Where the model was trained with
                ``--shorten-method truncate``, what is too long is cut as in training.

        Raises:
            UsageError: there are no choices, one is empty, or one is too long with its context.
        """
        check_texts([context], "choose")
        check_texts(choices, "choose")
        if not choices:
            raise UsageError("choose: the list of choices is empty")
        behind = numbers_of(self._dictionary, self._text.source(context), end=True)
        encoded = [self._numbers(choice, number, behind) for number, choice in enumerate(choices)]
        if not self._cuts:
            refuse_too_long(encoded, self._longest, "choose")
        encoded = [numbers[: self._longest] for numbers in encoded]
        scores = torch.zeros(len(encoded))
        for batch in batches_by_tokens(list(map(len, encoded)), BATCH):
            rows = [encoded[number] for number in batch]
            tokens = data_utils.collate_tokens(rows, self._dictionary.pad())
            heads = {"features_only": True, "classification_head_name": self._head}
            scores[batch] = self.model(self._loaded.move(tokens), **heads)[0][:, 0].float().cpu()
        return Choice(int(scores.argmax()), scores.softmax(0).tolist())

    def _numbers(self, choice: str, number: int, behind: Tensor) -> Tensor:
        """A choice before its context by number (T,), as the task puts them together."""
        tokens = self._text.source(choice)
        if not tokens:
            raise UsageError(f"choose: choice {number} of the list is empty")
        start = [] if self._init is None else [self._init]
        separator = [] if self._separator is None else [self._separator]
        before = torch.cat((torch.tensor(start).long(), numbers_of(self._dictionary, tokens, True)))
        between = torch.tensor(separator).long()
        return torch.cat((before[: self._longest_choice], between, behind))
