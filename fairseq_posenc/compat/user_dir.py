"""``--user-dir`` for a plug-in that is already imported."""

import os
from typing import Any, Callable

from fairseq import utils

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.compat.patching import wrap

_HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def user_dir_twice() -> None:
    """Accept a ``--user-dir`` that names the imported plug-in by any path.

    fairseq (issues 2815 and 4875) compares paths as text, so a symbolic link to the imported folder
    fails as "not globally unique", with a traceback.  A second copy of the plug-in in another
    folder remains an error, on one line, because only one of the two can run.
    """
    wrap(utils, "import_user_module", _knowing_this_package)


def _knowing_this_package(import_user_module: Callable[[Any], None]) -> Callable[[Any], None]:
    def wrapper(args: Any) -> None:
        given = getattr(args, "user_dir", None)
        if given is None:
            return import_user_module(args)
        folder = os.path.realpath(given)
        if folder == _HERE:
            return None
        if os.path.basename(folder) == os.path.basename(_HERE) and os.path.isdir(folder):
            raise UsageError(
                f"--user-dir {given}: another copy of this plug-in is imported already, from "
                f"{_HERE}; give that folder, or uninstall it or take it off PYTHONPATH"
            )
        return import_user_module(args)

    return wrapper
