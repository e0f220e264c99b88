"""Position encodings for fairseq: rotary and others, as a ``--user-dir`` plug-in.

Importing the package registers its architectures, tasks, criterions and optimisers with fairseq.
It also works around bugs of the installed fairseq, PyTorch and NumPy (:mod:`.compat`) and extends
functions of fairseq (:mod:`.extensions`), for stock architectures as well.  With
``FAIRSEQ_POSENC_NO_REPAIRS=1`` in the environment, importing the package only does the registration
and leaves the functions of fairseq, PyTorch and NumPy unchanged.

The plug-in's own command line (``fairseq-posenc``, ``python -m fairseq_posenc``) is the exception:
it starts without importing fairseq, and calls :func:`register` only in commands that need fairseq.
"""

import os
import sys
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    import torch

if __name__ != "fairseq_posenc":  # fairseq imports a --user-dir under the name of its folder
    raise SystemExit(
        f"fairseq_posenc: error: --user-dir: the folder is named {__name__}; rename it to "
        "fairseq_posenc, the name by which its modules import each other"
    )
else:
    from fairseq_posenc.version import __version__ as __version__

NO_REPAIRS = "FAIRSEQ_POSENC_NO_REPAIRS"


def register() -> None:
    """Register the plug-in and, unless the environment forbids it, repair and extend fairseq."""
    from fairseq_posenc import models  # noqa: F401 - importing registers
    from fairseq_posenc.basics.packages import load
    from fairseq_posenc.flags.registry import telling_once
    from fairseq_posenc.training import amos, masked_lm, sentence_prediction  # noqa: F401

    with telling_once():
        load("register")
    if os.environ.get(NO_REPAIRS, "0") in ("", "0"):
        from fairseq_posenc import compat, extensions

        compat.apply()
        extensions.apply()


def from_pretrained(
    folder: "Union[str, os.PathLike[str]]", device: "Union[str, torch.device]" = "cpu"
) -> Any:
    """Load a model folder that ``fairseq-posenc pack`` or a recipe has written.

    Args:
        folder: the model folder; no file outside it is read, and nothing is downloaded.
        device: ``cpu``, or another PyTorch device such as ``cuda`` or ``cuda:1``.

    Returns:
        fairseq's hub interface in evaluation mode, as ``from_pretrained`` of the model's class
        returns it: a :class:`~fairseq.hub_utils.GeneratorHubInterface` for translation or language
        models, a :class:`~fairseq_posenc.serving.hub.SentenceHubInterface` for masked language
        models and classifiers.  A task from a pack may have its own interface.

    Raises:
        UsageError: *folder* is not a model folder, a part of it is missing or damaged, or the
            device cannot be used.
    """
    from fairseq_posenc.serving.hub import load_folder
    from fairseq_posenc.serving.model_folder import read_model_folder

    return load_folder(read_model_folder(os.fspath(folder), "from_pretrained"), device)


def _is_own_command_line() -> bool:
    """True if the importing command is ``fairseq-posenc`` or ``python -m fairseq_posenc``."""
    if os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0] == "fairseq-posenc":
        return True
    importer = sys._getframe(2)  # under python -m, runpy imports the package first
    while importer.f_back and "importlib" in importer.f_globals.get("__name__", ""):
        importer = importer.f_back
    return importer.f_globals.get("__name__") == "runpy"


if not _is_own_command_line():
    register()
