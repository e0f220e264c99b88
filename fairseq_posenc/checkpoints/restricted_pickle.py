"""``torch.load`` with an allow-list, for PyTorch before 2.6."""

import collections
import fractions
import io
import pickle
import types
import zipfile
from typing import IO, Any, Dict, Mapping

import torch

#: The functions with which PyTorch pickles tensors; it resolves the storages itself, by name.
_TENSOR_GLOBALS: Dict[str, object] = {
    "collections.OrderedDict": collections.OrderedDict,
    "torch._utils._rebuild_parameter": torch._utils._rebuild_parameter,
    "torch._utils._rebuild_tensor": torch._utils._rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": torch._utils._rebuild_tensor_v2,
    "torch.Size": torch.Size,
    "torch.device": torch.device,
}


def load_restricted(path: str, allowed: Mapping[str, object]) -> Any:
    """Load a file written by ``torch.save`` on the CPU, calling only allowed objects.

    PyTorch 2.6 and later does the same with ``weights_only`` and named safe globals.

    Args:
        path: the file.
        allowed: objects that the file may refer to besides tensors, by the names it uses.

    Returns:
        the saved object.

    Raises:
        pickle.UnpicklingError: the file refers to another object.
    """
    module = _pickle_module({**_TENSOR_GLOBALS, **allowed})
    with open(path, "rb") as file:
        if _torch_load_takes(module):
            return torch.load(file, map_location="cpu", pickle_module=module)
        # PyTorch 1.13 ignores the argument, so call the functions behind its torch.load with it
        serialization: Any = torch.serialization
        if not zipfile.is_zipfile(file):
            file.seek(0)
            return serialization._legacy_load(file, "cpu", module, encoding="utf-8")
        with serialization._open_zipfile_reader(path) as reader:
            return serialization._load(reader, "cpu", module, encoding="utf-8")


def _pickle_module(allowed: Mapping[str, object]) -> types.ModuleType:
    """Make a replacement of the pickle module for ``torch.load(pickle_module=)``."""

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
    """Replacement of ``_codecs.encode``, with which pickle protocol 2 stores bytes.

    Raises:
        pickle.UnpicklingError: the encoding is not Latin-1, which is all that pickle uses.
    """
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


def _torch_load_takes(module: types.ModuleType) -> bool:
    """Check that ``torch.load`` uses *module*, by loading a file that it has to refuse."""
    buffer = io.BytesIO()
    torch.save(fractions.Fraction(1), buffer)
    buffer.seek(0)
    try:
        torch.load(buffer, pickle_module=module)
    except pickle.UnpicklingError:
        return True
    return False
