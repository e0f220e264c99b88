"""The record of a training run in its checkpoints: identifier, dictionary digests, languages.

Without it, checkpoints of two runs cannot be told apart, nor can two dictionaries of equal size.
The record is in ``extra_state``, which fairseq saves unchanged.  A resumed run keeps its
identifier.
"""

import contextlib
import hashlib
import logging
import uuid
import weakref
from typing import Any, Callable, Dict, List, Mapping, MutableMapping, Optional

from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.settings import task_of, task_settings
from fairseq_posenc.flags.options import Options, option

logger = logging.getLogger(__name__)

Record = Dict[str, Any]
_KEY = "fairseq_posenc"
_records: MutableMapping[Trainer, Record] = weakref.WeakKeyDictionary()


def record_of(checkpoint: Mapping[str, Any]) -> Record:
    """The record in a checkpoint; empty if the checkpoint has none."""
    return (checkpoint.get("extra_state") or {}).get(_KEY) or {}


def recorded(state_dict: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Trainer.state_dict`` to add the record."""

    def wrapper(trainer: Trainer) -> Any:
        state = state_dict(trainer)
        state["extra_state"][_KEY] = _records.setdefault(trainer, _new_record(trainer.task))
        return state

    return wrapper


def start_record(trainer: Trainer, path: str, checkpoint: Mapping[str, Any], goes_on: bool) -> None:
    """Continue the record of a checkpoint, or start a new one, and compare the dictionaries.

    A run that *goes_on* keeps the optimiser state.  Any other run is a warm start, in which a
    different dictionary is logged but not refused.
    """
    record, earlier = _new_record(trainer.task), record_of(checkpoint)
    if goes_on:
        record["run"] = earlier.get("run", record["run"])
    _records[trainer] = record
    try:
        check_dictionaries(path, checkpoint, trainer.task)
    except UsageError as error:
        if goes_on:
            raise
        logger.warning("warm start: %s", error.message)


def check_dictionaries(path: str, checkpoint: Mapping[str, Any], task: FairseqTask) -> None:
    """Refuse a dictionary with as many words as in training, but other words or another order."""
    saved = record_of(checkpoint).get("dictionaries") or {}
    for name, now in _dictionaries(task).items():
        before = saved.get(name, now)
        if before["size"] == now["size"] and before["digest"] != now["digest"]:
            raise UsageError(
                f"{path}: was trained with a different {name.replace('_', ' ')} of {now['size']} "
                "words (other words, or another order); give the data folder that it was trained on"
            )


def check_direction(path: str, checkpoint: Mapping[str, Any], task: FairseqTask) -> None:
    """Refuse to translate in the opposite direction of the training."""
    trained = record_of(checkpoint).get("languages") or _languages_of(task_of(checkpoint))
    source, target = _languages_of(task_settings(task))
    if source != target and None not in trained and [target, source] == list(trained):
        raise UsageError(
            f"--source-lang {source} --target-lang {target}: {path} was trained to translate from "
            f"{target} to {source}; swap the two"
        )


def _languages_of(task: Options) -> List[Optional[str]]:
    """The source and target language in the settings of a task; each is None if not set."""
    return [option(task, "source_lang"), option(task, "target_lang")]


def _new_record(task: FairseqTask) -> Record:
    return {
        "run": uuid.uuid4().hex,
        "dictionaries": _dictionaries(task),
        "languages": _languages_of(task_settings(task)),
    }


def _dictionaries(task: FairseqTask) -> Dict[str, Record]:
    """Size and digest of every dictionary; multilingual tasks have a dictionary per language."""
    languages: Mapping[str, Any] = getattr(task, "dicts", None) or {}
    named = {f"{language}_dictionary": each for language, each in languages.items()}
    for name in () if named else ("source_dictionary", "target_dictionary"):
        # the task may have no such dictionary
        with contextlib.suppress(NotImplementedError, AttributeError, KeyError):
            named[name] = getattr(task, name)
    digests = {}
    for name, dictionary in named.items():
        symbols = getattr(dictionary, "symbols", None)
        if symbols:
            digest = hashlib.sha256("\n".join(symbols).encode("utf-8", "surrogatepass"))
            digests[name] = {"size": len(symbols), "digest": digest.hexdigest()}
    return digests
