"""Reading checkpoints in fairseq's commands without executing code in them."""

import types
from typing import Any

import torch
from fairseq import checkpoint_utils

from fairseq_posenc.checkpoints.reading import load_file


def load_with_allow_list() -> None:
    """Make ``fairseq.checkpoint_utils`` read every file with :func:`load_file`.

    Unpickling can execute arbitrary code.  PyTorch 2.6 and later refuse to do so by default, but
    earlier versions do not, and fairseq main disables the check (pull request 5611).  With this,
    all versions read the same checkpoints and reject others with the same message.
    """
    if not isinstance(checkpoint_utils.torch, _Torch):
        checkpoint_utils.torch = _Torch("torch")


class _Torch(types.ModuleType):
    """A stand-in for the module ``torch`` with another ``load``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def load(self, file: Any, *_args: object, **_kwargs: object) -> Any:
        """Load an open file on the CPU, as fairseq does with every checkpoint."""
        return load_file(getattr(file, "name", file))
