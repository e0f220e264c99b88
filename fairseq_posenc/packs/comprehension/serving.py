"""Model folders that answer questions, by a span of a passage or by one of several choices.

Importing this registers the hub interfaces of both tasks, and the extra files of their folders.
"""

from typing import List, NamedTuple, Sequence, Tuple

import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.flags.options import option
from fairseq_posenc.packs.comprehension.data import SETTINGS, split_texts
from fairseq_posenc.packs.comprehension.questions import Question, Reading
from fairseq_posenc.packs.comprehension.span_prediction import TASK
from fairseq_posenc.packs.comprehension.spans import Answer
from fairseq_posenc.serving.hub import (
    FOLDER_TASKS,
    FolderTask,
    SentenceHubInterface,
    refuse_too_long,
)

_WINDOWS = 32  # number of windows in a batch


def check_texts(texts: object, function: str, size: int = 1) -> None:
    """Refuse anything but a list of texts, or of tuples of *size* texts.

    A single text would be read as a list of its characters.
    """
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
        raise UsageError(f"{function}: takes a list of texts; write [text] for a single one")
    for number, text in enumerate(texts):
        parts = text if isinstance(text, (tuple, list)) and size > 1 else [text]
        if len(parts) != size or not all(isinstance(part, str) for part in parts):
            wanted = "a text" if size == 1 else f"{size} texts"
            raise UsageError(f"{function}: element {number} of the list is {text!r}, not {wanted}")


class Reply(NamedTuple):
    """The answer of a model to a question on a passage."""

    text: str  # the answer in the words of the passage, empty if the model predicts none
    no_answer: float  # the probability that there is no answer
    best: List[Answer]  # the possible answers, best first


class SpanModel(SentenceHubInterface):
    """A model of ``--task span_prediction``."""

    def answer(self, pairs: Sequence[Tuple[str, str]]) -> List[Reply]:
        """Answer *pairs* of a question and a passage, with the passage in windows as in training.

        Raises:
            UsageError: *pairs* is no list of pairs, a text has no token, or a question leaves no
                room for its passage.
        """
        check_texts(pairs, "answer", 2)
        if not pairs:
            return []
        questions = [Question(str(number), pair[0], number) for number, pair in enumerate(pairs)]
        reading, task = Reading([passage for _, passage in pairs], questions, []), self.task
        split = split_texts(reading, self.bpe.preparation, task.source_dictionary, "answer")
        task.questions, task.passages = [], []
        rows = task.rows_of(self.model, task.windows_of(split, "answer"), _WINDOWS)
        return [
            Reply(answered.text(task.threshold), answered.no_answer_probability, answered.best)
            for _, answered in task.answers(rows)
        ]


class Choice(NamedTuple):
    """The choice of a model."""

    number: int  # index of the chosen text, from 0
    probabilities: List[float]  # of each choice


class ChoiceModel(SentenceHubInterface):
    """A model of ``--task sentence_ranking``."""

    @torch.no_grad()
    def choose(self, context: str, choices: Sequence[str]) -> Choice:
        """Choose the best of several texts.

        Args:
            context: the text to which all choices belong; in the recipes, a passage.
            choices: the texts to choose from; in the recipes, each is the question with one answer.
                Long texts are truncated if they were in training (``--shorten-method truncate``).

        Raises:
            UsageError: there are no choices, a choice is empty, or a choice with the context is too
                long.
        """
        check_texts([context], "choose")
        check_texts(choices, "choose")
        if not choices:
            raise UsageError("choose: the list of choices is empty")
        settings, encoded = task_settings(self.task), []
        for number, choice in enumerate(choices):
            alone, pair = self.joined([choice]), self.joined([choice, context])
            if len(alone) == len(self.joined([""])):
                raise UsageError(f"choose: choice {number} of the list is empty")
            before = alone[: option(settings, "max_option_length")]
            encoded.append(torch.cat((before, pair[len(alone) :])))
        if not self.cuts:
            refuse_too_long(encoded, self.longest, "choose")
        head = option(settings, "ranking_head_name", "sentence_classification_head")
        logits = [self.predict(head, row[: self.longest], return_logits=True) for row in encoded]
        scores = torch.cat(logits)[:, 0].float()
        return Choice(int(scores.argmax()), scores.softmax(0).tolist())


FOLDER_TASKS[TASK] = FolderTask(SpanModel, (SETTINGS,))
FOLDER_TASKS["sentence_ranking"] = FolderTask(ChoiceModel)
