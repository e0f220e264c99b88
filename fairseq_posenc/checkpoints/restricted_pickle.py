"""``torch.load`` with an allow-list, for PyTorch before 2.6."""

import collections
import fractions
import io
import pickle
import types
import zipfile
from typing import IO, Any, Dict, Mapping

import torch

#: The functions that PyTorch writes tensors with; it finds the storages itself, by name.
_TENSOR_GLOBALS: Dict[str, object] = {
    "collections.OrderedDict": collections.OrderedDict,
    "torch._utils._rebuild_parameter": torch._utils._rebuild_parameter,
    "torch._utils._rebuild_tensor": torch._utils._rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": torch._utils._rebuild_tensor_v2,
    "torch.Size": torch.Size,
    "torch.device": torch.device,
}


def load_restricted(path: str, allowed: Mapping[str, object]) -> Any:
    """Load a file written by ``torch.save`` on the CPU, calling nothing that is not allowed.

    PyTorch from 2.6 on does the same as ``weights_only`` with named safe globals.

    Args:
        path: the file.
        allowed: objects the file may ask for besides tensors, by the name it uses.

    Returns:
        what was saved.

    Raises:
        pickle.UnpicklingError: the file asks for something else.
    """
    module = _pickle_module({**_TENSOR_GLOBALS, **allowed})
    with open(path, "rb") as file:
        if _torch_load_takes(module):
            return torch.load(file, map_location="cpu", pickle_module=module)
        # PyTorch 1.13 ignores the argument; these are what its torch.load calls with it
        serialization: Any = torch.serialization
        if not zipfile.is_zipfile(file):
            file.seek(0)
            return serialization._legacy_load(file, "cpu", module, encoding="utf-8")
        with serialization._open_zipfile_reader(path) as reader:
            return serialization._load(reader, "cpu", module, encoding="utf-8")


def _pickle_module(allowed: Mapping[str, object]) -> types.ModuleType:
    """Make the stand-in for Python's pickle that ``torch.load(pickle_module=)`` takes."""

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
    """Do what pickle protocol 2 asks of ``_codecs.encode``: turn its text into bytes.

    Raises:
        pickle.UnpicklingError: any other encoding, which pickle never asks for.
    """
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


def _torch_load_takes(module: types.ModuleType) -> bool:
    """Whether ``torch.load`` uses *module*: it then refuses a file that is not allowed."""
    buffer = io.BytesIO()
    torch.save(fractions.Fraction(1), buffer)
    buffer.seek(0)
    try:
        torch.load(buffer, pickle_module=module)
    except pickle.UnpicklingError:
        return True
    return False
