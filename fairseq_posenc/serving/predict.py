"""Classifying the lines of a table: text from its columns, a label and its probability out.

Several classifiers for one task average their logits (RoBERTa section 5.1).
"""

import sys
from argparse import Namespace
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch
from fairseq.data import data_utils
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import in_blocks
from fairseq_posenc.serving.inputs import batches_by_tokens
from fairseq_posenc.serving.model_folder import Head

#: The texts of an example, one or two.
Example = Tuple[str, ...]


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
    models: Sequence[Any], head: Head, lines: Iterable[str], args: Namespace
) -> Iterator[str]:
    """The lines to write: a label and its probability, or a value, for each line of a table.

    Args:
        models: the hub interfaces of classifiers for one task, whose outputs are averaged.
        head: the head of the first.
        lines: the lines of the table.
        args: those of ``fairseq-posenc predict``.

    Raises:
        UsageError: the columns are not those of the training, or a line lacks one.
    """
    source, before = iter(lines), int(args.header)
    header = next(source, "") if args.header else None
    places = places_of(args.columns or ("1,2" if head.inputs == 2 else "1"), header)
    if head.inputs not in (None, len(places)):
        raise UsageError(
            f"--columns {args.columns or '1'}: names {len(places)} columns, and the model was "
            f"trained on {head.inputs} texts at a time"
        )
    named = [] if head.regression and len(head.labels) == 1 else head.labels
    if args.scores:
        yield "\t".join([*(["value"] if head.regression else ["label", "probability"]), *named])
    for block in in_blocks(source, args.buffer):
        encoded = []
        for number, texts in enumerate(examples_of(block, places, before + 1), before + 1):
            numbers, remark = _read(models, texts)
            encoded.append(numbers)
            if remark:
                print(f"line {number}: {remark}", file=sys.stderr)
        for logits in averaged(models, encoded, args.max_tokens):
            yield "" if logits is None else _line(logits, head, bool(args.scores and named))
        before += len(block)


def _line(logits: Tensor, head: Head, scores: bool) -> str:
    """The columns of the outputs (N,) of a head."""
    outputs = logits if head.regression else logits.softmax(-1)
    values = [head.value(output) if head.regression else output for output in outputs.tolist()]
    best = 0 if head.regression else int(logits.argmax())
    label = [] if head.regression else [head.labels[best]]
    shown = [values[best], *(values if scores else [])]
    return "\t".join([*label, *(f"{value:.6f}" for value in shown)])


@torch.no_grad()
def averaged(
    models: Sequence[Any], encoded: Sequence[Sequence[Tensor]], max_tokens: int
) -> List[Optional[Tensor]]:
    """The averaged outputs (N,) of several models for each example, or None where one is unread.

    Args:
        models: the hub interfaces.
        encoded: the numbers (T,) of each example that each model reads, or none.
        max_tokens: tokens in a batch.
    """
    outputs: Dict[int, List[Tensor]] = {place: [] for place, each in enumerate(encoded) if each}
    places = list(outputs)
    for index, model in enumerate(models):
        read = [encoded[place][index] for place in places]
        for batch in batches_by_tokens(list(map(len, read)), max_tokens):
            padding = model.task.source_dictionary.pad()
            tokens = data_utils.collate_tokens([read[number] for number in batch], padding)
            logits = model.predict(model.folder.head.name, tokens, return_logits=True)
            for number, row in zip(batch, logits.float().cpu()):
                outputs[places[number]].append(row)
    means = {place: torch.stack(rows).mean(0) for place, rows in outputs.items()}
    return [means.get(place) for place in range(len(encoded))]


def _read(models: Sequence[Any], texts: Example) -> Tuple[List[Tensor], str]:
    """The numbers (T,) of an example that each model reads, or none, and what is to be said."""
    if not any(text.strip() for text in texts):
        return [], "it is empty; its prediction is left empty"
    encoded, remark = [], ""
    for model in models:
        numbers = model.joined(texts)
        if len(numbers) > model.longest:
            size = f"it has {len(numbers)} tokens, and the model accepts {model.longest}"
            if not model.cuts:
                return [], f"{size}; its prediction is left empty"
            remark = remark or f"{size}; the rest is cut off, as in training"
        encoded.append(numbers[: model.longest])
    return encoded, remark
