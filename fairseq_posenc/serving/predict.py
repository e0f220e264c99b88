"""Classifying the lines of a table: text from its columns, a label and its probability out."""

import sys
from typing import Callable, Iterable, Iterator, List, Optional, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.masked_lm import Complain, Example, Prediction
from fairseq_posenc.serving.model_folder import Head
from fairseq_posenc.serving.streams import in_blocks

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
        lines: of the table; a blank one is an example without text.
        places: of the columns.
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
        predict: of the classifier.
        head: its head.
        lines: of the table.
        columns: those of the texts, as for :func:`places_of`; by default the first, or for a model
            of pairs the first two.
        has_header: whether the first line names the columns.
        scores: add the probability of every label, below a line of their names.
        buffer: number of lines to read before they are classified.
        max_tokens: tokens in a batch.
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
