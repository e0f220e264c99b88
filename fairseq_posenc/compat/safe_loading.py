"""Reading checkpoints in fairseq's commands without running what they contain."""

import types
from typing import Any

import torch
from fairseq import checkpoint_utils

from fairseq_posenc.checkpoints.reading import load_file


def load_with_allow_list() -> None:
    """Let ``fairseq.checkpoint_utils`` read every file through :func:`load_file`.

    A pickle can run any code.  PyTorch from 2.6 on refuses it unless told otherwise, but
    older ones do not, and fairseq main tells it otherwise (pull request 5611).  With this,
    every version reads the same checkpoints and refuses the rest in the same words.
    """
    if not isinstance(checkpoint_utils.torch, _Torch):
        checkpoint_utils.torch = _Torch("torch")


class _Torch(types.ModuleType):
    """``torch`` as one module sees it, with another ``load``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def load(self, file: Any, *_args: object, **_kwargs: object) -> Any:
        """Load an open file on the CPU, which is where fairseq loads every checkpoint."""
        return load_file(getattr(file, "name", file))
