"""Two processes train with a memory, over gloo, on one machine and without a GPU."""

import shutil

import pytest
from support.toy_lm import SHAPE

from tests.commands.test_distributed import train_together

pytest_plugins = ["support.toy", "support.toy_lm"]


@pytest.mark.slow
def test_two_processes_resume_with_the_memory_of_both(corpus, tmp_path):
    flags = ["--task", "language_modeling_with_memory", "--tokens-per-sample", "4"]
    flags += ["--arch", "transformer_xl_lm_small", *SHAPE, "--memory-length", "6"]
    flags += ["--batch-size", "4", "--save-interval-updates", "4", "--max-update"]
    whole = train_together(corpus, tmp_path / "whole", *flags, "6").losses()
    rest = tmp_path / "rest"
    rest.mkdir()
    shutil.copy(tmp_path / "whole" / "checkpoint_1_4.pt", rest / "checkpoint_last.pt")
    resumed = train_together(corpus, rest, *flags, "6").losses()
    assert {"update 5", "update 6"} <= resumed.keys() and "update 4" not in resumed
    updates = {key: loss for key, loss in resumed.items() if key.startswith("update")}
    assert updates.items() <= whole.items()
