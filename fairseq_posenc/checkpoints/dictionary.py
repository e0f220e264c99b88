"""Finding and reading the dictionary of a checkpoint."""

import os
from typing import Any, Mapping

from fairseq.data import Dictionary, data_utils

from fairseq_posenc.basics.errors import UsageError


def find_dictionary(path: str, checkpoint: Mapping[str, Any], flag: str) -> str:
    """Find the source dictionary, beside the checkpoint or in its training data.

    Args:
        path: the file of the checkpoint.
        checkpoint: its content, as :func:`~fairseq_posenc.checkpoints.reading.read_checkpoint`
            returns it.
        flag: the flag that gives the dictionary, for the error message.

    Raises:
        UsageError: it is not found there.
    """
    task: Any = (checkpoint.get("cfg") or {}).get("task") or checkpoint.get("args") or {}
    task = task if isinstance(task, Mapping) else vars(task)
    data = (task.get("data") or "").split(os.pathsep)[0]
    folders = [os.path.dirname(path) or "."]
    folders += [data, os.path.join(data, "input0")] if data else []
    source = task.get("source_lang")
    if source is None and os.path.isdir(data):  # fairseq-train infers it and does not save it
        source = data_utils.infer_language_pair(data)[0]
    names = ([f"dict.{source}.txt"] if source else []) + ["dict.txt"]
    tried = [os.path.join(folder, name) for folder in folders for name in names]
    for candidate in tried:
        if os.path.isfile(candidate):
            return candidate
    raise UsageError(
        f"{path}: its dictionary was not found (tried {', '.join(tried)}); give it with {flag}"
    )


def read_dictionary(path: str, adds_mask: bool = True) -> Dictionary:
    """Read a dict.txt as fairseq's tasks do.

    Args:
        path: the file.
        adds_mask: append ``<mask>`` unless the file has it, as ``--task masked_lm`` does.

    Raises:
        UsageError: the file cannot be read or is not a dictionary.
    """
    try:
        dictionary = Dictionary.load(path)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"{path}: cannot be read as a fairseq dictionary ({reason})") from error
    if adds_mask:
        dictionary.add_symbol("<mask>")
    return dictionary
