"""Reference outputs of independent implementations, and functions to read them.

``data/NAME.json`` describes a reference: its source, settings, parameters and inputs.
``data/NAME.npz`` holds its outputs.  Random parameters and inputs are not stored: generators and
tests draw them with seeds that depend on their names.
:mod:`golden.make` regenerates the files.
"""

import json
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import torch
from torch import Tensor

DATA = Path(__file__).resolve().parent / "data"
#: What a generator returns: the description of a reference, and its outputs.
Made = Tuple[Dict[str, Any], Dict[str, Tensor]]


def source(package: str, place: str = "") -> str:
    """The package, its version, and the module in it that computed a reference."""
    return f"{package} {version(package)} {place}".rstrip()


def normal(*shape: int, mean: float = 0.0, std: float = 1.0) -> List[Any]:
    """The description of a random tensor in the files: shape, mean and standard deviation."""
    return [list(shape), mean, std]


def draw(name: str, shape: List[int], mean: float, std: float) -> Tensor:
    """Normal random numbers (*shape*, float32) that depend only on *name*, on every machine."""
    source = np.random.RandomState(zlib.crc32(name.encode()))
    return torch.from_numpy((mean + std * source.standard_normal(shape)).astype(np.float32))


def _tensors(lists: Any) -> Any:
    """Convert nested dictionaries of integer lists to nested dictionaries of tensors."""
    if isinstance(lists, dict):
        return {key: _tensors(value) for key, value in lists.items()}
    return torch.tensor(lists)


def instantiate(name: str, description: Dict[str, Any]) -> Dict[str, Any]:
    """A reference without its outputs, from its description.

    Args:
        name: the reference.
        description: the content of its JSON file: ``source``, ``config`` and, optionally,
            ``parameters`` and ``inputs`` (see :func:`normal`), ``tied`` (a parameter's second name,
            with its first), ``integers`` (inputs in full) and ``meta``.

    Returns:
        *description* with ``state_dict`` and ``inputs`` as tensors.
    """
    state, inputs = (
        {key: draw(f"{name}/{key}", *how) for key, how in description.get(part, {}).items()}
        for part in ("parameters", "inputs")
    )
    state.update({key: state[other] for key, other in description.get("tied", {}).items()})
    inputs.update(_tensors(description.get("integers", {})))
    return {**description, "state_dict": state, "inputs": inputs}


def load(name: str) -> Dict[str, Any]:
    """The reference *name*: ``source``, ``config``, ``state_dict``, ``inputs``, ``outputs``."""
    reference = instantiate(name, json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")))
    with np.load(DATA / f"{name}.npz") as stored:
        reference["outputs"] = {key: torch.from_numpy(stored[key]) for key in stored.files}
    return reference
