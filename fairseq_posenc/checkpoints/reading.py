"""Reading and writing fairseq checkpoints without executing code that they contain."""

import os
import re
import zipfile
from typing import Any, Dict, List, Mapping, Optional, Union

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.checkpoints.entries import check_entries, remedy
from fairseq_posenc.checkpoints.restricted import load_restricted
from fairseq_posenc.flags.options import by_name

Path = Union[str, "os.PathLike[str]"]
#: Buffers of fairseq that hold one number each.
_CONSTANTS = ("version", "_float_tensor")
_OF_FAIRSEQ = "give a file that fairseq-train wrote"
#: Content of a checkpoint file: "model" with the parameters, "cfg" with the settings, and more.
Checkpoint = Dict[str, Any]
#: Messages that refuse files with part of a model, keyed by an entry that only such files have.
PARTIAL: Dict[str, str] = {}


def load_file(
    path: Path, lazy: bool = False, stand_ins: Optional[Mapping[str, object]] = None
) -> Any:
    """Load a file of ``torch.save`` on the CPU; only objects on an allow-list are unpickled.

    If *lazy*, tensors are memory-mapped where PyTorch supports it; if not *lazy*, the checksums of
    the archive are verified, which PyTorch does not do.  *stand_ins* maps names of further pickled
    objects to the objects to use instead.

    Raises:
        UsageError: the file is missing, is not a file of ``torch.save``, is damaged, or contains an
            object outside :data:`.restricted.FILE_GLOBALS`.
    """
    path = os.fspath(path)
    try:
        if _is_archive(path) and not lazy:
            _check_whole(path)
        return load_restricted(path, stand_ins or {}, mmap=lazy)
    except UsageError:
        raise
    except Exception as error:  # a damaged file can cause any error
        raise _explain(path, error) from error


def settings_in(checkpoint: Mapping[str, Any], group: str) -> Dict[str, Any]:
    """The settings of a group in a checkpoint, by name, exactly as saved.

    Files from before fairseq 0.10 have the settings of all groups in one namespace.
    """
    cfg = checkpoint.get("cfg")
    return by_name(checkpoint.get("args") if cfg is None else cfg.get(group))


def model_settings(checkpoint: Mapping[str, Any]) -> Dict[str, Any]:
    """The model's flags in a checkpoint, by name, exactly as saved."""
    return settings_in(checkpoint, "model")


def read_checkpoint(path: Path, lazy: bool = False) -> Checkpoint:
    """Load a fairseq checkpoint as the plain dictionary in the file.

    Returns:
        the dictionary; ``"model"`` maps names to tensors, and ``"cfg"`` (or, in files
        from before fairseq 0.10, ``"args"``) holds the settings.

    Raises:
        UsageError: as for :func:`load_file`, or the file is not a fairseq checkpoint, or one of its
            entries is not what fairseq writes.
    """
    state = load_file(path, lazy)
    if not isinstance(state, dict):
        raise UsageError(
            f"{path}: not a fairseq checkpoint: it holds a {type(state).__name__}, but should hold "
            "a dictionary with 'model'"
        )
    for entry, other in (("model", "model"), ("cfg", "args")):
        if state.get(entry) is None and state.get(other) is None:
            raise UsageError(
                f"{path}: not a fairseq checkpoint: it has no '{entry}' (its entries: "
                f"{_some_of(list(state))}); {_OF_FAIRSEQ}"
            )
    check_tensors(state["model"], os.fspath(path))
    check_entries(state, os.fspath(path))
    return state


def write_checkpoint(state: Checkpoint, path: Path) -> None:
    """Write a checkpoint atomically; an existing file is replaced."""
    with replace_file(path) as partial, open(partial, "wb") as file:
        torch.save(state, file)  # with a path, torch.save would store its name


def refuse_nonfinite(value: Tensor, name: str, path: str) -> None:
    """Refuse a tensor with NaN or infinity."""
    if not bool(torch.isfinite(value.float()).all()):
        raise UsageError(
            f"{path}: {name} holds NaN or infinity, so the training that wrote it had failed; "
            "give an earlier checkpoint"
        )


def check_weights(
    path: str,
    weights: Mapping[str, Tensor],
    saved: Mapping[str, Tensor],
    ours: Mapping[str, Tensor],
) -> None:
    """Refuse *weights* that are not finite, or are integers in the file but not in the model.

    *weights* are either *saved* (those of the file, before loading) or *ours* (those of the model,
    after loading).
    """
    for name, value in weights.items():
        before, after = saved.get(name, value), ours.get(name, value)
        if after.is_floating_point() and not before.is_floating_point():
            raise UsageError(
                f"{path}: {name} holds {before.dtype} numbers, not {after.dtype}; give the "
                "checkpoint as fairseq-train wrote it"
            )
        refuse_nonfinite(value, name, path)


def refuse_partial(path: str, parameters: Mapping[str, Tensor]) -> None:
    """Refuse a file with only a part of a model, where a whole model is needed."""
    for entry, words in PARTIAL.items():
        if entry in parameters:
            raise UsageError(f"{path}: {words}")


def check_tensors(content: Any, path: str) -> Dict[str, Tensor]:
    """Check that the *content* of a weight file maps names to ordinary tensors, and return it."""
    if not isinstance(content, dict):
        raise UsageError(f"{path}: holds a {type(content).__name__}, not a dictionary of tensors")
    for name, value in content.items():
        if not isinstance(name, str) or not torch.is_tensor(value):
            raise UsageError(
                f"{path}: {name} is a {type(value).__name__}, not a tensor; save only the "
                "model's tensors, as a dictionary that maps names to tensors"
            )
        if value.layout != torch.strided or value.is_quantized or value.is_complex():
            raise UsageError(f"{path}: {name} is not an ordinary tensor of real numbers")
        if name.rpartition(".")[2] in _CONSTANTS and not value.numel():
            raise UsageError(f"{path}: {name} is empty; give the original checkpoint")
    return content


def _is_archive(path: str) -> bool:
    """True for a zip archive, PyTorch's format since 1.6; refuses files not from ``torch.save``.

    A pipe is refused before it is opened, because opening it would block.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UsageError(f"{path}: is a pipe or a device, not a checkpoint; {_OF_FAIRSEQ}")
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror or error}); {checkpoints_near(path)}"
        ) from error
    if not head:
        raise UsageError(
            f"{path}: is empty, so the run that wrote it was interrupted; {remedy(path)}"
        )
    zipped = head == b"PK\x03\x04"
    if zipped:
        with zipfile.ZipFile(path) as archive:
            members = {name.rpartition("/")[2] for name in archive.namelist()}
    if zipped and ("data.pkl" not in members or "constants.pkl" in members):  # TorchScript has both
        raise UsageError(
            f"{path}: is a zip archive or a TorchScript model, not a checkpoint; {_OF_FAIRSEQ}"
        )
    if not zipped and head[:1] != b"\x80":
        raise UsageError(
            f"{path}: is not a PyTorch checkpoint (it starts with {head!r}); {_OF_FAIRSEQ}"
        )
    return zipped


def _check_whole(path: str) -> None:
    """Refuse an archive whose content does not match its checksums."""
    with zipfile.ZipFile(path) as archive:
        # torch.serialization.set_crc32_options(False) leaves the checksums out
        has_checksums = any(member.CRC for member in archive.infolist())
        damaged = archive.testzip() if has_checksums else None
    if damaged is not None:
        part = damaged.partition("/")[2] or damaged
        raise UsageError(
            f"{path}: is damaged (the checksum of its part {part} is wrong); {remedy(path)}"
        )


def _explain(path: str, error: Exception) -> UsageError:
    """The one-line error that replaces an exception from reading a file."""
    text = str(error)
    forbidden = re.search(r"GLOBAL ([\w.]+)", text)
    if forbidden is not None:
        return UsageError(
            f"{path}: refused: it holds {forbidden.group(1)}, which no fairseq checkpoint needs "
            "and which could run code when loaded; if you trust the file, load it once with "
            "torch.load(..., weights_only=False) and save it again without that object"
        )
    damage = (EOFError, IndexError, zipfile.BadZipFile)
    if isinstance(error, damage) or re.search("truncated|unexpected EOF", text):
        return UsageError(
            f"{path}: is truncated or damaged, so the run or the copy that wrote it was "
            f"interrupted; {remedy(path)}"
        )
    reason = text.rpartition("WeightsUnpickler error: ")[2].strip().split("\n")[0]
    return UsageError(
        f"{path}: cannot be read as a checkpoint ({type(error).__name__}: {reason}); {remedy(path)}"
    )


def reason_of(error: Exception) -> str:
    """The type of an exception and the first line of its text."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"


def checkpoints_near(path: str) -> str:
    """List the checkpoints in the folder of *path*, for an error message."""
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".pt"))
    except OSError:
        return f"there is no folder {folder}"
    return f"{folder} contains {_some_of(names) or 'no .pt file'}"


def _some_of(names: List[str]) -> str:
    shown = ", ".join(map(str, names[:5]))
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")
