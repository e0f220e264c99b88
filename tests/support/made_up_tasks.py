"""The modules of examples/generated_tasks, under the names that ``--user-dir`` gives them."""

import importlib

import pytest
from support.commands import ROOT

TASKS_DIR = ("--user-dir", str(ROOT / "examples" / "generated_tasks"))

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "examples")
    answers, registry, splits, writing = (
        importlib.import_module(f"generated_tasks.{name}")
        for name in ("answers", "registry", "splits", "writing")
    )
