"""The classification head of a checkpoint, as model folders describe it."""

import os
import re
from typing import List, Optional, Sequence

from fairseq.data import Dictionary

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import Checkpoint
from fairseq_posenc.checkpoints.settings import task_of
from fairseq_posenc.flags.options import option
from fairseq_posenc.serving.model_folder import Head

_OUTPUT = re.compile(r"classification_heads\.([^.]+)\.out_proj\.weight$")


def head_of(
    state: Checkpoint, task: str, data: str, bounds: Optional[Sequence[float]] = None
) -> Optional[Head]:
    """The head that ``predict`` uses: that of the task, or the only one of an imported model.

    Args:
        state: the checkpoint.
        task: its task.
        data: the folder that it was trained on; ``label/dict.txt`` there names the classes, which
            otherwise are numbers.
        bounds: the values that 0 and 1 stand for in a regression.

    Raises:
        UsageError: there are fewer names than classes.
    """
    if task not in ("sentence_prediction", "masked_lm"):
        return None
    found = {
        m.group(1): len(v) for k, v in state["model"].items() for m in [_OUTPUT.search(k)] if m
    }
    settings = task_of(state)
    name = option(settings, "classification_head_name") or next(iter(found), None)
    if name not in found or (task == "masked_lm" and len(found) > 1):
        return None
    classes = found[name]
    if option(settings, "regression_target", False):
        values = ["value"] if classes == 1 else [f"value{n}" for n in range(1, classes + 1)]
        low, high = bounds or (0.0, 1.0)
        return Head(name, values, True, _inputs(data), (low, high))
    return Head(
        name, _labels(os.path.join(data, "label", "dict.txt"), classes), False, _inputs(data)
    )


def _labels(path: str, classes: int) -> List[str]:
    """The first symbols of a dictionary of labels; the others fill it up."""
    if not os.path.isfile(path):
        return [str(number) for number in range(classes)]
    dictionary = Dictionary.load(path)
    labels: List[str] = dictionary.symbols[dictionary.nspecial :][:classes]
    if len(labels) < classes:
        raise UsageError(
            f"{path}: names {len(labels)} labels, and the model has {classes} classes; give the "
            "data folder that it was trained on"
        )
    return labels


def _inputs(data: str) -> Optional[int]:
    """Number of texts in each example of a data folder."""
    if not os.path.isdir(os.path.join(data, "input0")):
        return None
    return 2 if os.path.isdir(os.path.join(data, "input1")) else 1
