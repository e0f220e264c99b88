"""Classifying the lines of a table: text from its columns, a label and its probability out.

Several classifiers for one task average their logits (RoBERTa section 5.1).
"""

import sys
from typing import Callable, Iterable, Iterator, List, Optional, Sequence

import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import in_blocks
from fairseq_posenc.serving.masked_lm import (
    Complain,
    Example,
    MaskedLanguageModel,
    Prediction,
    prediction_of,
)
from fairseq_posenc.serving.model_folder import Head, ModelFolder, refuse_without_head
from fairseq_posenc.serving.scores import BATCH

#: Predictions for examples; see ``MaskedLanguageModel.predict``.
Predict = Callable[[List[Example], Complain, int], List[Optional[Prediction]]]


def places_of(columns: str, header: Optional[str]) -> List[int]:
    """The places of columns, from 0.

    Args:
        columns: numbers from 1, or with a header names, separated by commas.
        header: the first line of the table, or None if it has none.

    Raises:
        UsageError: there is no such column.
    """
    names = [] if header is None else header.split("\t")
    places = []
    for column in columns.split(","):
        if column in names:
            places.append(names.index(column))
        elif column.isdecimal() and int(column) > 0:
            places.append(int(column) - 1)
        elif header is None:
            raise UsageError(
                f"--columns {columns}: {column!r} is no number from 1 on; for names, give --header"
            )
        else:
            raise UsageError(
                f"--columns {columns}: the table has no column {column!r}, but {', '.join(names)}"
            )
    return places


def examples_of(lines: Sequence[str], places: Sequence[int], first: int) -> List[Example]:
    """The texts of lines, with white space as in the recipes: single spaces.

    Args:
        lines: lines of the table; a blank one is an example without text.
        places: the places of the columns.
        first: number of the first line, for messages.

    Raises:
        UsageError: a line has too few columns.
    """
    found: List[Example] = []
    for number, line in enumerate(lines, first):
        cells = line.split("\t") if line.strip() else [""] * (max(places) + 1)
        if len(cells) <= max(places):
            raise UsageError(
                f"line {number} of the table: has no column {max(places) + 1}; columns are "
                "separated by tabs"
            )
        found.append(tuple(" ".join(cells[place].split()) for place in places))
    return found


def predicted_lines(
    predict: Predict,
    head: Head,
    lines: Iterable[str],
    columns: Optional[str],
    has_header: bool,
    scores: bool,
    buffer: int,
    max_tokens: int,
) -> Iterator[str]:
    """The lines to write: a label and its probability, or a value, for each line of a table.

    Args:
        predict: classifies examples.
        lines: the lines of the table.
        columns: the columns of the texts, as for :func:`places_of`; by default the first, or the
            first two for a model of pairs.
        has_header: whether the first line names the columns.
        scores: add the probability of every label, below a line of their names.
        buffer: number of lines to read before they are classified.
    """
    source, before = iter(lines), int(has_header)
    header = next(source, "") if has_header else None
    places = places_of(columns or ("1,2" if head.inputs == 2 else "1"), header)
    if head.inputs not in (None, len(places)):
        raise UsageError(
            f"--columns {columns or '1'}: names {len(places)} columns, and the model was trained "
            f"on {head.inputs} texts at a time"
        )
    named = [] if head.regression and len(head.labels) == 1 else head.labels
    if scores:
        yield "\t".join([*(["value"] if head.regression else ["label", "probability"]), *named])
    for block in in_blocks(source, buffer):
        examples = examples_of(block, places, before + 1)

        def complain(number: int, reason: str, first: int = before + 1) -> None:
            print(f"line {first + number}: {reason}", file=sys.stderr)

        for prediction in predict(examples, complain, max_tokens):
            yield _line(prediction, named if scores else [])
        before += len(block)


def _line(prediction: Optional[Prediction], named: Sequence[str]) -> str:
    if prediction is None:
        return ""
    columns = [] if prediction.label is None else [prediction.label]
    values = [prediction.score, *(prediction.scores[name] for name in named)]
    return "\t".join(columns + [f"{value:.6f}" for value in values])


def check_same_heads(folders: Sequence[ModelFolder], flag: str) -> Head:
    """The head of the first of several model folders, which all others must equal but in name.

    Args:
        folders: the model folders.
        flag: what named the further ones, for messages.

    Raises:
        UsageError: one is no classifier, or has other labels or inputs.
    """
    first, *others = [refuse_without_head(folder, folder.path) for folder in folders]
    for folder, head in zip(folders[1:], others):
        if head._replace(name=first.name) != first:
            raise UsageError(
                f"{flag} {folder.path}: is a classifier for another task than {folders[0].path} "
                f"(labels {', '.join(head.labels)}, not {', '.join(first.labels)}, or other "
                "inputs); give models of one task"
            )
    return first


class Ensemble:
    """Classifiers for one task as one; each prepares the text as its own folder says.

    Args:
        models: the classifiers.
        head: their head.
    """

    def __init__(self, models: Sequence[MaskedLanguageModel], head: Head) -> None:
        self._models, self._head = models, head

    def predict(
        self, examples: Sequence[Example], complain: Complain, max_tokens: int = BATCH
    ) -> List[Optional[Prediction]]:
        """The predictions of the averaged logits; a regression averages its values.

        Args:
            examples: texts, or pairs of texts.
            complain: as for :meth:`MaskedLanguageModel.predict`; the first model speaks for all.

        Returns:
            a prediction for each, or None for those that a model cannot read.
        """

        def silent(number: int, reason: str) -> None:
            pass

        outputs = [
            model.class_logits(examples, silent if place else complain, max_tokens)
            for place, model in enumerate(self._models)
        ]
        found: List[Optional[Prediction]] = []
        for rows in zip(*outputs):
            read = [row for row in rows if row is not None]
            whole = len(read) == len(rows)
            found.append(prediction_of(torch.stack(read).mean(0), self._head) if whole else None)
        return found
