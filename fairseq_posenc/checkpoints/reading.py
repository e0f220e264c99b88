"""Reading and writing fairseq checkpoints without running what they contain."""

import importlib
import os
import re
import zipfile
from argparse import Namespace
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import torch

from fairseq_posenc.checkpoints.restricted_pickle import load_restricted
from fairseq_posenc.errors import UsageError
from fairseq_posenc.files import replace_file

Path = Union[str, "os.PathLike[str]"]
#: What is in a checkpoint file: "model" with the parameters, "cfg" with the settings, and more.
Checkpoint = Dict[str, Any]

#: What fairseq's own checkpoint files hold besides tensors and plain containers: the flags of an
#: architecture defined with argparse, and the counts that ``--eval-bleu`` keeps as int64 arrays
#: (numpy 2 renamed the module; files written under either are read under either).
FILE_GLOBALS = (
    "argparse.Namespace",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
    "numpy.dtypes.Int64DType",
)

#: What rank 0 sends to the other ranks, pickled, when several processes resume a training: the
#: same checkpoint with its settings as an omegaconf object and numbers in place of its tensors.
BROADCAST_GLOBALS = (
    "omegaconf.base.Metadata",
    "omegaconf.base.ContainerMetadata",
    "omegaconf.nodes.AnyNode",
    "omegaconf.dictconfig.DictConfig",
    "omegaconf.listconfig.ListConfig",
    "collections.defaultdict",
    "typing.Any",
    "builtins.dict",
    "builtins.list",
    "builtins.int",
    "fairseq.distributed.utils._TensorPlaceholder",
)

ALLOWED_GLOBALS = FILE_GLOBALS + BROADCAST_GLOBALS

# Reading a file of another numpy version needs names that differ from the object's own, which
# PyTorch takes since 2.6, the release that also brought this function.
_HAS_NAMED_SAFE_GLOBALS = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")


def allow_fairseq_checkpoints() -> None:
    """Let ``torch.load`` with ``weights_only`` read what fairseq writes, and nothing more.

    Since PyTorch 2.6 that is the default, and stock ``fairseq-generate`` and the other commands
    fail at the first checkpoint.  Does nothing before PyTorch 2.4, which has no such list.
    """
    add = getattr(torch.serialization, "add_safe_globals", None)
    if add is not None:
        add(_as_safe_globals(_found(ALLOWED_GLOBALS)))


def load_file(
    path: Path, lazy: bool = False, stand_ins: Optional[Mapping[str, object]] = None
) -> Any:
    """Load any file written by ``torch.save`` on the CPU, with an allow-list on every PyTorch.

    Args:
        path: the file.
        lazy: leave the tensors on the disk until they are used, where PyTorch can.
        stand_ins: further objects that the file may ask for, by the name it uses.

    Returns:
        what was saved.

    Raises:
        UsageError: the file is missing, a directory, truncated, not written by ``torch.save``,
            or holds an object outside :data:`FILE_GLOBALS`; the line names the file, the
            object, and what would work.
    """
    path = os.fspath(path)
    _check_is_checkpoint_file(path)
    allowed = {**_found(FILE_GLOBALS), **(stand_ins or {})}
    try:
        if _HAS_NAMED_SAFE_GLOBALS:
            return _load_with_safe_globals(path, allowed, lazy and zipfile.is_zipfile(path))
        return load_restricted(path, allowed)
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise _explain(path, error) from error


def model_settings(checkpoint: Mapping[str, Any]) -> Dict[str, Any]:
    """The flags of the model in a checkpoint, by name, exactly as they were saved.

    Args:
        checkpoint: as :func:`read_checkpoint` returns it.
    """
    cfg = checkpoint.get("cfg")
    settings: Union[Namespace, Mapping[str, Any]] = (
        checkpoint["args"] if cfg is None else cfg["model"]
    )
    return dict(settings if isinstance(settings, Mapping) else vars(settings))


def read_checkpoint(path: Path, lazy: bool = False) -> Checkpoint:
    """Load a fairseq checkpoint as the plain dictionary that is in the file.

    Args:
        path: the file.
        lazy: as for :func:`load_file`.

    Returns:
        the dictionary; ``"model"`` maps names to tensors, and ``"cfg"`` (or, in files
        from before fairseq 0.10, ``"args"``) holds the settings.

    Raises:
        UsageError: as :func:`load_file`, or the file holds something else.
    """
    state = load_file(path, lazy)
    if not isinstance(state, dict):
        raise UsageError(
            f"{path}: not a fairseq checkpoint, it holds a {type(state).__name__} where a "
            "dictionary with 'model' was expected"
        )
    for entry, other in (("model", "model"), ("cfg", "args")):
        if state.get(entry) is None and state.get(other) is None:
            raise UsageError(
                f"{path}: not a fairseq checkpoint, it has no '{entry}' (its entries: "
                f"{_some_of(list(state))}); give a file that fairseq-train wrote"
            )
    return state


def write_checkpoint(state: Checkpoint, path: Path) -> None:
    """Write a checkpoint so that the file is either complete or absent.

    Args:
        state: what to save.
        path: the file; an existing one is replaced at the end, in one step.

    Raises:
        UsageError: the folder does not exist or cannot be written to.
    """
    with replace_file(path) as partial, open(partial, "wb") as file:
        torch.save(state, file)  # not by name, which PyTorch would write into the file


def _load_with_safe_globals(path: str, allowed: Mapping[str, object], mmap: bool) -> Any:
    before = torch.serialization.get_safe_globals()
    try:
        with torch.serialization.safe_globals(_as_safe_globals(allowed)):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    finally:  # leaving the block also removes what had been in the list before it
        torch.serialization.add_safe_globals(before)


def _resolve(name: str) -> Optional[object]:
    """Find the object behind a dotted name, or None where this installation has none."""
    module, _, attribute = name.rpartition(".")
    try:
        if attribute == "_reconstruct":  # in numpy.core, deprecated, or in numpy._core
            return importlib.import_module("numpy").empty(0).__reduce__()[0]
        if attribute == "Int64DType":  # a name since numpy 1.25, the class is older
            return type(importlib.import_module("numpy").dtype("int64"))
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        return None


def _found(names: Tuple[str, ...]) -> Dict[str, object]:
    """The objects behind *names*, by name, as far as this installation has them."""
    found = {name: _resolve(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _as_safe_globals(allowed: Mapping[str, object]) -> List[Any]:
    """Objects by name in the form that PyTorch's allow-list takes."""
    if _HAS_NAMED_SAFE_GLOBALS:
        return [(value, name) for name, value in allowed.items()]
    return list(allowed.values())


def _check_is_checkpoint_file(path: str) -> None:
    """Refuse a file that ``torch.save`` did not write before any reader sees it."""
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError as error:
        raise UsageError(
            f"{path}: no checkpoint can be read there ({error.strerror or error}); "
            f"{checkpoints_near(path)}"
        ) from error
    if not head:
        raise UsageError(
            f"{path}: is empty, so the run that wrote it was interrupted; use an earlier checkpoint"
        )
    if head == b"PK\x03\x04":
        try:
            with zipfile.ZipFile(path) as archive:
                members = {name.rpartition("/")[2] for name in archive.namelist()}
        except zipfile.BadZipFile as error:
            raise _explain(path, EOFError()) from error
        if "data.pkl" not in members or "constants.pkl" in members:
            raise UsageError(
                "{}: is a {}, not a checkpoint; give a file that fairseq-train wrote".format(
                    path, "TorchScript model" if "data.pkl" in members else "zip archive"
                )
            )
    elif head[:1] != b"\x80":
        raise UsageError(
            f"{path}: is not a PyTorch checkpoint (it starts with {head!r}); give a file that "
            "fairseq-train wrote"
        )


def _explain(path: str, error: Exception) -> UsageError:
    """Turn what a reader raised into one line for the user."""
    text = str(error)
    forbidden = re.search(r"GLOBAL ([\w.]+)", text)
    if forbidden is not None:
        return UsageError(
            f"{path}: refused, it holds {forbidden.group(1)}, which no fairseq checkpoint needs "
            "and which could run code when loaded; if you trust the file, load it once with "
            "torch.load(..., weights_only=False) and save it again without that object"
        )
    if isinstance(error, (EOFError, IndexError)) or re.search("truncated|unexpected EOF", text):
        return UsageError(
            f"{path}: is truncated or damaged, so the run or the copy that wrote it was "
            "interrupted; use an earlier checkpoint or copy it again"
        )
    reason = text.rpartition("WeightsUnpickler error: ")[2].strip().split("\n")[0]
    return UsageError(
        f"{path}: cannot be read as a checkpoint ({type(error).__name__}: {reason}); use an "
        "earlier checkpoint or copy it again"
    )


def checkpoints_near(path: str) -> str:
    """Say which checkpoints lie in the folder that was meant, for an error message."""
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    try:
        found = sorted(name for name in os.listdir(folder) if name.endswith(".pt"))
    except OSError:
        return f"there is no folder {folder}"
    if not found:
        return f"there is no .pt file in {folder}"
    return f"in {folder} there is {_some_of(found)}"


def _some_of(names: List[str], limit: int = 5) -> str:
    """List a few names for an error message."""
    shown = ", ".join(str(name) for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
