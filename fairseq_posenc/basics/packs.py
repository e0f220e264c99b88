"""Loading packs, which are found by listing the folder ``fairseq_posenc/packs``.

A pack has modules for what it adds, so that each is imported only where it is used:

============  ===================================================================
``register``  registers encodings, attentions, models, tasks and the like
``exchange``  registers formats of import and export, and what is written with one
``serving``   registers what model folders of tasks hold, and what reads them
``commands``  ``COMMANDS`` of ``fairseq-posenc``, without PyTorch and fairseq
============  ===================================================================
"""

import importlib
import importlib.util
import pkgutil
from types import ModuleType
from typing import List


def load(part: str) -> List[ModuleType]:
    """The modules called *part* of all packs that have one, imported, by the names of the packs."""
    packs = importlib.import_module("fairseq_posenc.packs")
    folders = pkgutil.iter_modules(packs.__path__, f"{packs.__name__}.")
    names = [f"{folder.name}.{part}" for folder in folders]
    return [importlib.import_module(name) for name in names if importlib.util.find_spec(name)]
