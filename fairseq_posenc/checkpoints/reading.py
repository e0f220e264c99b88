"""Reading and writing fairseq checkpoints without executing code that they contain."""

import importlib
import os
import re
import zipfile
from argparse import Namespace
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.checkpoints.archive import damaged_member, remedy
from fairseq_posenc.checkpoints.restricted_pickle import load_restricted

Path = Union[str, "os.PathLike[str]"]
#: Content of a checkpoint file: "model" with the parameters, "cfg" with the settings, and more.
Checkpoint = Dict[str, Any]

#: Objects in fairseq's checkpoint files besides tensors and plain containers: the flags of an
#: architecture defined with argparse, and the counts that ``--eval-bleu`` keeps as int64 arrays
#: (NumPy 2 renamed the module; files written by either version can be read by the other).
FILE_GLOBALS = (
    "argparse.Namespace",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
    "numpy.dtypes.Int64DType",
)

#: Objects that rank 0 sends to the other ranks, pickled, when several processes resume a training:
#: the same checkpoint with its settings as an omegaconf object and numbers in place of tensors.
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

# Reading a file of another NumPy version needs names that differ from the object's qualified name,
# which PyTorch accepts since 2.6, the release that also added this function.
_HAS_NAMED_SAFE_GLOBALS = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")


def allow_fairseq_checkpoints() -> None:
    """Let ``torch.load`` with ``weights_only`` read fairseq's checkpoints, and nothing else.

    ``weights_only`` is the default since PyTorch 2.6, where stock fairseq's commands fail to load
    any checkpoint.  Does nothing before PyTorch 2.4, which has no such allow-list.
    """
    add = getattr(torch.serialization, "add_safe_globals", None)
    if add is not None:
        add(_as_safe_globals(_found(ALLOWED_GLOBALS)))


def load_file(
    path: Path, lazy: bool = False, stand_ins: Optional[Mapping[str, object]] = None
) -> Any:
    """Load a file written by ``torch.save`` on the CPU, with an allow-list on every PyTorch.

    The archive's checksums are verified, which PyTorch does not do.

    Args:
        path: the file.
        lazy: map the tensors into memory instead of reading them, where PyTorch can, and do not
            verify checksums.
        stand_ins: further objects that the file may refer to, by the names it uses.

    Returns:
        the saved object.

    Raises:
        UsageError: the file is missing, a directory, truncated, damaged, not written by
            ``torch.save``, or contains an object outside :data:`FILE_GLOBALS`; the message names
            the file, the object, and a remedy.
    """
    path = os.fspath(path)
    _check_is_checkpoint_file(path)
    if not lazy:
        _check_whole(path)
    allowed = {**_found(FILE_GLOBALS), **(stand_ins or {})}
    try:
        if _HAS_NAMED_SAFE_GLOBALS:
            return _load_with_safe_globals(path, allowed, lazy and zipfile.is_zipfile(path))
        return load_restricted(path, allowed)
    except Exception as error:  # a damaged file can raise anything
        raise _explain(path, error) from error


def model_settings(checkpoint: Mapping[str, Any]) -> Dict[str, Any]:
    """The model's flags in a checkpoint, by name, exactly as saved.

    Args:
        checkpoint: as :func:`read_checkpoint` returns it.
    """
    cfg = checkpoint.get("cfg")
    settings: Union[Namespace, Mapping[str, Any]] = (
        checkpoint["args"] if cfg is None else cfg["model"]
    )
    return dict(settings if isinstance(settings, Mapping) else vars(settings))


def read_checkpoint(path: Path, lazy: bool = False) -> Checkpoint:
    """Load a fairseq checkpoint as the plain dictionary in the file.

    Args:
        path: the file.
        lazy: as for :func:`load_file`.

    Returns:
        the dictionary; ``"model"`` maps names to tensors, and ``"cfg"`` (or, in files
        from before fairseq 0.10, ``"args"``) holds the settings.

    Raises:
        UsageError: as for :func:`load_file`, or the file is not a fairseq checkpoint.
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
    """Write a checkpoint atomically.

    Args:
        state: what to save.
        path: the file; an existing one is replaced when the new one is complete.

    Raises:
        UsageError: the folder does not exist or cannot be written to.
    """
    with replace_file(path) as partial, open(partial, "wb") as file:
        torch.save(state, file)  # not by name, which PyTorch would store in the file


def _load_with_safe_globals(path: str, allowed: Mapping[str, object], mmap: bool) -> Any:
    before = torch.serialization.get_safe_globals()
    try:
        with torch.serialization.safe_globals(_as_safe_globals(allowed)):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    finally:  # leaving the block also removes entries that were in the list before
        torch.serialization.add_safe_globals(before)


def _resolve(name: str) -> Optional[object]:
    """Find the object with a dotted name, or None if this installation has none."""
    module, _, attribute = name.rpartition(".")
    try:
        if attribute == "_reconstruct":  # in numpy.core, deprecated, or numpy._core
            return importlib.import_module("numpy").empty(0).__reduce__()[0]
        if attribute == "Int64DType":  # the name exists since NumPy 1.25, the class is older
            return type(importlib.import_module("numpy").dtype("int64"))
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        return None


def _found(names: Tuple[str, ...]) -> Dict[str, object]:
    """The objects called *names*, by name, leaving out those that this installation lacks."""
    found = {name: _resolve(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _as_safe_globals(allowed: Mapping[str, object]) -> List[Any]:
    """Convert objects by name to the form of PyTorch's allow-list."""
    if _HAS_NAMED_SAFE_GLOBALS:
        return [(value, name) for name, value in allowed.items()]
    return list(allowed.values())


def _check_is_checkpoint_file(path: str) -> None:
    """Refuse a file that ``torch.save`` did not write, before any reader opens it."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UsageError(
            f"{path}: is a pipe or a device, not a checkpoint; give a file that fairseq-train wrote"
        )
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
            f"{path}: is empty, so the run that wrote it was interrupted; {remedy(path)}"
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


def _check_whole(path: str) -> None:
    """Refuse an archive with bytes that differ from its checksums."""
    if not zipfile.is_zipfile(path):
        return
    try:
        damaged = damaged_member(path)
    except Exception as error:  # a damaged archive can raise anything
        raise _explain(path, error) from error
    if damaged is not None:
        raise UsageError(
            f"{path}: is damaged, the checksum of its part {damaged} is wrong; {remedy(path)}"
        )


def _explain(path: str, error: Exception) -> UsageError:
    """Turn an exception of a reader into a one-line error."""
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
            f"interrupted; {remedy(path)}"
        )
    reason = text.rpartition("WeightsUnpickler error: ")[2].strip().split("\n")[0]
    return UsageError(
        f"{path}: cannot be read as a checkpoint ({type(error).__name__}: {reason}); {remedy(path)}"
    )


def checkpoints_near(path: str) -> str:
    """List the checkpoints in the folder of *path*, for an error message."""
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
