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
    """Leave out the deprecation notices of hydra, which are fairseq's to mend."""
    config.addinivalue_line("filterwarnings", "ignore::UserWarning")
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning")


def pytest_collectstart():
    """Load the plug-in where tests run; pytest-xdist's first process only hands them out."""
    from support import quick_hydra

    import fairseq_posenc  # noqa: F401

    quick_hydra.remember()


def pytest_collection_finish():
    """Collect garbage seldom: tests make little."""
    gc.set_threshold(100_000, 50, 50)


# files with the longest tests, or with servers to start: at the end, a process would wait for them
FIRST = ("scripts/test_scripts.py::test_all", "examples/test_wmt14", "checkpoints/test_killed")


def pytest_collection_modifyitems(items):
    """Begin with the longest tests."""
    items.sort(
        key=lambda item: not item.nodeid.startswith(tuple(f"tests/{name}" for name in FIRST))
    )


def pytest_runtest_setup(item):
    """Skip the tests of a GPU where there is none."""
    import torch

    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a GPU")


@pytest.fixture(scope="module", autouse=True)
def lasting():
    """Spare the garbage collector what lives as long as the tests: tests, and what they import.

    statsmodels collects garbage in every call: a second if all of transformers is imported.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def deterministic():
    """The same random numbers for every test, whatever ran before."""
    import torch

    torch.set_num_threads(1)
    random.seed(0)
    torch.manual_seed(0)
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Gives the folder of a name, which ``fill(folder)`` fills once in a test run.

    Nothing is written to the folder afterwards: other tests may be reading it.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # a folder of all processes

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
    """Loader of outputs of code that was released, but is no package; skips without the files."""
    from fairseq_posenc.checkpoints.reading import load_file

    def load(name):
        path = SHARED / "golden" / f"{name}.pt"
        if not path.exists():
            pytest.skip(f"an extra: no outputs of the released code beside the checkout ({name})")
        return load_file(path)

    return load


@pytest.fixture(params=["golden", "released"])
def reference_of(request):
    """Loader of the references in tests/golden, and of outputs of the released code."""
    return request.getfixturevalue(request.param)
