"""Set-up shared by all tests: quiet, deterministic, one thread, and the plug-in loaded."""

import fcntl
import gc
import logging
import os
import random
import shutil
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes that tests start

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_configure(config):
    """Ignore the deprecation warnings that fairseq's use of Hydra causes."""
    config.addinivalue_line("filterwarnings", "ignore::UserWarning")
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning")


def pytest_collectstart():
    """Load the plug-in in processes that run tests; pytest-xdist's main process collects none."""
    from support import quick_hydra

    import fairseq_posenc  # noqa: F401

    quick_hydra.remember()


def pytest_collection_finish():
    """Collect no garbage: that saves half a minute of seven, and costs each process 2 GB."""
    gc.disable()


# the slowest tests and those that start servers begin first, so that none runs alone at the end
FIRST = ("scripts/test_scripts.py::test_all", "examples/test_wmt14", "checkpoints/test_killed")


def pytest_collection_modifyitems(items):
    items.sort(
        key=lambda item: not item.nodeid.startswith(tuple(f"tests/{name}" for name in FIRST))
    )


def pytest_runtest_setup(item):
    """Skip tests that need a GPU on machines without one."""
    import torch

    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a GPU")


@pytest.fixture(scope="module", autouse=True)
def lasting():
    """Exempt tests and imported modules from garbage collection: they outlive every test.

    statsmodels collects garbage in every call, which takes 1 s if all of transformers is imported.
    """
    gc.freeze()


@pytest.fixture(autouse=True)
def deterministic():
    """Give every test the same random numbers, whatever ran before it."""
    import torch

    torch.set_num_threads(1)
    random.seed(0)
    torch.manual_seed(0)
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """A function (name, fill) that returns a folder, which ``fill(folder)`` fills once per run.

    Tests must not write to the folder: other tests may be reading it.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # the folder that all processes share

    def folder_of(name, fill):
        folder, done = root / name, root / f"{name}.done"
        with open(root / f"{name}.lock", "w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def golden():
    """Loader of the reference outputs in tests/golden."""
    from golden import load

    return load


@pytest.fixture(scope="session")
def released():
    """Loader of outputs of authors' released code; skips the test if the file is missing."""
    from fairseq_posenc.checkpoints.reading import load_file

    def load(name):
        path = SHARED / "golden" / f"{name}.pt"
        if not path.exists():
            pytest.skip(f"optional: no outputs of the released code beside the checkout ({name})")
        return load_file(path)

    return load


@pytest.fixture(params=["golden", "released"])
def reference_of(request):
    """Run a test with the loader ``golden``, and again with the loader ``released``."""
    return request.getfixturevalue(request.param)
