"""Reading and writing fairseq checkpoints without running what they contain."""

import importlib
import os
import re
import zipfile
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import torch

from fairseq_posenc.checkpoints.restricted_pickle import load_restricted
from fairseq_posenc.errors import UsageError
from fairseq_posenc.files import replace_file

#: What fairseq's own checkpoint files hold beside tensors and plain containers: the flags
#: of an architecture defined with argparse, and the counts that ``--eval-bleu`` keeps as
#: int64 arrays (numpy 2 renamed the module; files of both are read under both).
FILE_GLOBALS = (
    "argparse.Namespace",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
    "numpy.dtypes.Int64DType",
)

#: What rank 0 sends to the other ranks, pickled, when several processes resume: the same
#: checkpoint with its settings as an omegaconf object and its tensors replaced by numbers.
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

# The name can differ from the object's own only since PyTorch 2.6, which reading a file
# of another numpy needs; the same release brought this function.
_HAS_NAMED_SAFE_GLOBALS = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")


def allow_fairseq_checkpoints() -> None:
    """Let ``torch.load`` with ``weights_only`` read what fairseq writes, and nothing more.

    Since PyTorch 2.6 that is the default, and stock ``fairseq-generate`` and the rest stop
    at the first checkpoint.  Does nothing before PyTorch 2.4, which has no such list.
    """
    add = getattr(torch.serialization, "add_safe_globals", None)
    if add is not None:
        add(_safe_globals(ALLOWED_GLOBALS))


def load_file(path: Union[str, "os.PathLike[str]"], lazy: bool = False) -> Any:
    """Load any file of ``torch.save`` on the CPU, with an allow-list on every PyTorch.

    Args:
        path: the file.
        lazy: leave the tensors on the disk until they are used, where PyTorch can.

    Returns:
        what was saved.

    Raises:
        UsageError: the file is missing, a directory, truncated, not from ``torch.save``,
            or holds an object outside :data:`FILE_GLOBALS`; the line names the file, the
            object, and what would work.
    """
    path = os.fspath(path)
    _check_is_checkpoint_file(path)
    try:
        if _HAS_NAMED_SAFE_GLOBALS:
            return _load_with_safe_globals(path, mmap=lazy and zipfile.is_zipfile(path))
        allowed = {name: _resolve(name) for name in FILE_GLOBALS}
        return load_restricted(path, allowed)
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise _explain(path, error) from error


def model_settings(checkpoint: Mapping[str, Any]) -> Dict[str, Any]:
    """The flags of the model in what :func:`read_checkpoint` returned, by name."""
    old = checkpoint.get("cfg") is None
    settings: Any = checkpoint["args"] if old else checkpoint["cfg"]["model"]
    return dict(settings) if hasattr(settings, "keys") else dict(vars(settings))


def read_checkpoint(path: Union[str, "os.PathLike[str]"], lazy: bool = False) -> Dict[str, Any]:
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
    if not hasattr(state, "keys"):
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


def write_checkpoint(state: Dict[str, Any], path: Union[str, "os.PathLike[str]"]) -> None:
    """Write a checkpoint so that the file is either complete or absent.

    Args:
        state: what to save.
        path: the file; an existing one is replaced at the end, in one step.

    Raises:
        UsageError: the folder does not exist or cannot be written to.
    """
    with replace_file(path) as partial, open(partial, "wb") as file:
        torch.save(state, file)  # not by name, which PyTorch would write into the file


def _load_with_safe_globals(path: str, mmap: bool) -> Any:
    before = torch.serialization.get_safe_globals()
    try:
        with torch.serialization.safe_globals(_safe_globals(FILE_GLOBALS)):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    finally:  # leaving the block also takes away what had been there before it
        torch.serialization.add_safe_globals(before)


def _resolve(name: str) -> Optional[Any]:
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


def _safe_globals(names: Tuple[str, ...]) -> List[Any]:
    """Return the objects in the form that PyTorch's allow-list takes."""
    found = [(_resolve(name), name) for name in names]
    found = [(thing, name) for thing, name in found if thing is not None]
    return found if _HAS_NAMED_SAFE_GLOBALS else [thing for thing, _ in found]


def _check_is_checkpoint_file(path: str) -> None:
    """Refuse what is no file of ``torch.save`` before any reader sees it."""
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
    """Rotation what a reader raised into the one line for the user."""
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
