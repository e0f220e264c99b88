"""Classifying texts in the columns of a table: a label and its probability for each line.

The logits of several classifiers for one task are averaged (RoBERTa section 5.1).
"""

import sys
from argparse import Namespace
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch
from fairseq.data import data_utils
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import in_blocks
from fairseq_posenc.serving.model_folder import Head, ModelFolder
from fairseq_posenc.serving.translation import batches_by_tokens


def common_head(folders: Sequence[ModelFolder]) -> Head:
    """The head that ``--model`` and all of ``--ensemble`` have; refuse different heads."""
    first = folders[0].head
    for folder, flag in zip(folders, ["--model", *["--ensemble"] * len(folders)]):
        head = folder.head
        if head is None or first is None:
            raise UsageError(
                f"{flag} {folder.path}: holds a model of --task {folder.task} without a "
                "classification head, or with several; predict needs a classifier, fine-tuned "
                "with --task sentence_prediction"
            )
        if head._replace(name=first.name) != first:
            raise UsageError(
                f"{flag} {folder.path}: is a classifier for another task than {folders[0].path} "
                f"(its labels are {', '.join(head.labels)}, not {', '.join(first.labels)}, or its "
                "inputs differ); give models of one task"
            )
    assert first is not None
    return first


def places_of(columns: str, names: Optional[List[str]]) -> List[int]:
    """Zero-based indices of *columns*, separated by commas: one-based numbers, or *names*."""
    places = []
    for column in columns.split(","):
        if names and column in names:
            places.append(names.index(column))
        elif column.isdecimal() and int(column) > 0:
            places.append(int(column) - 1)
        elif names is None:
            raise UsageError(
                f"--columns {columns}: {column!r} is no number from 1 on; for names, give --header"
            )
        else:
            raise UsageError(
                f"--columns {columns}: the table has no column {column!r}, but "
                f"{', '.join(names)}; give some of these"
            )
    return places


def predicted_lines(
    models: Sequence[Any], head: Head, lines: Iterable[str], args: Namespace
) -> Iterator[str]:
    """The lines to write: a label and its probability, or a value, for each line of a table.

    Runs of white space in a text become single spaces, as in the recipes.

    Args:
        models: the hub interfaces of classifiers for one task, whose outputs are averaged.
        head: the head of the first model.
        lines: the lines of the table.
        args: the arguments of ``fairseq-posenc predict``.
    """
    source, before = iter(lines), int(args.header)
    columns = args.columns or ("1,2" if head.inputs == 2 else "1")
    places = places_of(columns, next(source, "").split("\t") if args.header else None)
    if head.inputs not in (None, len(places)):
        raise UsageError(
            f"--columns {columns}: names {len(places)} columns, but the model was trained on "
            f"{head.inputs} texts per example"
        )
    named = [] if head.regression and len(head.labels) == 1 else head.labels
    if args.scores:
        yield "\t".join([*(["value"] if head.regression else ["label", "probability"]), *named])
    for block in in_blocks(source, args.buffer):
        encoded = []
        for number, line in enumerate(block, before + 1):
            cells = line.split("\t") if line.strip() else [""] * (max(places) + 1)
            if len(cells) <= max(places):
                raise UsageError(
                    f"line {number} of the table: has no column {max(places) + 1}; columns are "
                    "separated by tabs"
                )
            texts = [" ".join(cells[place].split()) for place in places]
            numbers, remark = _read(models, texts)
            encoded.append(numbers)
            if remark:
                print(f"line {number}: {remark}", file=sys.stderr)
        for logits in averaged(models, encoded, args.max_tokens):
            yield "" if logits is None else _line(logits, head, bool(args.scores and named))
        before += len(block)


def _line(logits: Tensor, head: Head, scores: bool) -> str:
    if head.regression:
        label, values = [], list(map(head.value, logits.tolist()))
        best = values[0]
    else:
        label, values = [head.labels[int(logits.argmax())]], logits.softmax(-1).tolist()
        best = max(values)
    return "\t".join([*label, *(f"{value:.6f}" for value in (best, *(values if scores else ())))])


@torch.no_grad()
def averaged(
    models: Sequence[Any], encoded: Sequence[Sequence[Tensor]], max_tokens: int
) -> List[Optional[Tensor]]:
    """For each example, the averaged outputs (N,) of several models, or None if it is left out.

    Args:
        models: the hub interfaces.
        encoded: for each example, its token numbers (T,) for each model, or [] to leave it out.
        max_tokens: largest number of tokens in a batch.
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


def _read(models: Sequence[Any], texts: Sequence[str]) -> Tuple[List[Tensor], str]:
    """The token numbers (T,) of an example for each model, or []; and a remark for the user."""
    if not any(texts):
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
