"""``torch.load`` with an allow-list, on every PyTorch.

In PyTorch 2.6 and later, ``weights_only`` with named safe globals restricts what is unpickled.  In
earlier versions, an unpickler defined here has the same effect.
"""

import collections
import fractions
import importlib
import io
import pickle
import types
import zipfile
from typing import IO, Any, Dict, List, Mapping, Optional, Tuple

import torch

#: Objects in fairseq's checkpoint files besides tensors and plain containers: the flags of an
#: architecture defined with argparse, and the counts of ``--eval-bleu``, which are int64 arrays
#: (NumPy 2 renamed their module; NumPy 1 and 2 can read each other's files).
FILE_GLOBALS = (
    "argparse.Namespace",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
    "numpy.dtypes.Int64DType",
)

#: Further objects in the pickled checkpoint that rank 0 sends to the other ranks when several
#: processes resume a training; in it, settings are an omegaconf object, and tensors placeholders.
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

# A file from another NumPy version can refer to an object by a name that is not its qualified name
# here.  PyTorch has allowed such names since 2.6, which also added the function tested below.
_HAS_NAMED_SAFE_GLOBALS = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")

#: The functions and classes in pickled tensors; PyTorch itself resolves their storages, by name.
_TENSOR_GLOBALS: Dict[str, object] = {
    "collections.OrderedDict": collections.OrderedDict,
    "torch._utils._rebuild_parameter": torch._utils._rebuild_parameter,
    "torch._utils._rebuild_tensor": torch._utils._rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": torch._utils._rebuild_tensor_v2,
    "torch.Size": torch.Size,
    "torch.device": torch.device,
}


def allow_fairseq_checkpoints() -> None:
    """Add the objects in fairseq's checkpoints to the allow-list of ``weights_only``.

    ``weights_only`` has been the default since PyTorch 2.6, so stock fairseq's commands fail to
    load any checkpoint.  Before PyTorch 2.4, which added the allow-list, this does nothing.
    """
    add = getattr(torch.serialization, "add_safe_globals", None)
    if add is not None:
        add(_as_safe_globals(_installed(ALLOWED_GLOBALS)))


def load_restricted(path: str, stand_ins: Mapping[str, object], mmap: bool = False) -> Any:
    """Load a file written by ``torch.save``, on the CPU; unpickling calls only allowed objects.

    The arguments are those of :func:`.load_file`, where *mmap* is called *lazy*.

    Raises:
        Exception: an object is not allowed, or the file is damaged; the type depends on PyTorch.
    """
    allowed = {**_installed(FILE_GLOBALS), **stand_ins}
    if _HAS_NAMED_SAFE_GLOBALS:
        return _load_with_safe_globals(path, allowed, mmap and zipfile.is_zipfile(path))
    return _load_with_unpickler(path, allowed)


def _load_with_safe_globals(path: str, allowed: Mapping[str, object], mmap: bool) -> Any:
    before = torch.serialization.get_safe_globals()
    try:
        with torch.serialization.safe_globals(_as_safe_globals(allowed)):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    finally:  # leaving the block also removes entries that were allowed before it
        torch.serialization.add_safe_globals(before)


def _load_with_unpickler(path: str, allowed: Mapping[str, object]) -> Any:
    module = _pickle_module({**_TENSOR_GLOBALS, **allowed})
    with open(path, "rb") as file:
        if _torch_load_takes(module):
            return torch.load(file, map_location="cpu", pickle_module=module)
        # torch.load of PyTorch 1.13 ignores pickle_module, so call the functions behind torch.load
        serialization: Any = torch.serialization
        if not zipfile.is_zipfile(file):
            file.seek(0)
            return serialization._legacy_load(file, "cpu", module, encoding="utf-8")
        with serialization._open_zipfile_reader(path) as reader:
            return serialization._load(reader, "cpu", module, encoding="utf-8")


def _resolve(name: str) -> Optional[object]:
    """The object with a dotted *name*, or None if it is not installed."""
    module, _, attribute = name.rpartition(".")
    try:
        if attribute == "_reconstruct":  # numpy.core or numpy._core, depending on the version
            return importlib.import_module("numpy").empty(0).__reduce__()[0]
        if attribute == "Int64DType":  # the name exists since NumPy 1.25, the class is older
            return type(importlib.import_module("numpy").dtype("int64"))
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        return None


def _installed(names: Tuple[str, ...]) -> Dict[str, object]:
    """Map each of the dotted *names* to its object, and leave out names that are not installed."""
    objects = {name: _resolve(name) for name in names}
    return {name: value for name, value in objects.items() if value is not None}


def _as_safe_globals(allowed: Mapping[str, object]) -> List[Any]:
    """Convert a mapping of names to objects to the form of PyTorch's allow-list."""
    if _HAS_NAMED_SAFE_GLOBALS:
        return [(value, name) for name, value in allowed.items()]
    return list(allowed.values())


def _pickle_module(allowed: Mapping[str, object]) -> types.ModuleType:
    """A module for ``torch.load(pickle_module=)`` that unpickles only *allowed* objects."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            full_name = f"{module}.{name}"
            if full_name == "_codecs.encode":
                return encode_latin1
            if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
                return getattr(torch, name)
            if full_name not in allowed:
                raise pickle.UnpicklingError(f"Unsupported global: GLOBAL {full_name} ")
            return allowed[full_name]

    def load(file: IO[bytes], encoding: str = "ASCII") -> Any:
        return Unpickler(file, encoding=encoding).load()

    stand_in: Any = types.ModuleType("restricted_pickle")
    stand_in.Unpickler = Unpickler
    stand_in.load = load
    return stand_in


def encode_latin1(text: str, encoding: str) -> bytes:
    """Replaces ``_codecs.encode``, which pickle protocol 2 calls to restore bytes from Latin-1."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


def _torch_load_takes(module: types.ModuleType) -> bool:
    """True if ``torch.load`` uses *module*; tested with a file that *module* has to refuse."""
    buffer = io.BytesIO()
    torch.save(fractions.Fraction(1), buffer)
    buffer.seek(0)
    try:
        torch.load(buffer, pickle_module=module)
    except pickle.UnpicklingError:
        return True
    return False
