"""A training that goes on with other settings says so in one line of its log."""

import shutil

import pytest
from support.commands import SMALL, train

pytest_plugins = ["support.toy"]

SAME = ["--arch", "roformer_tiny", *SMALL, "--max-epoch", "11"]
OTHER = ["--lr", "0.02", "--dropout", "0.3", "--max-tokens", "700", "--seed", "7"]


@pytest.mark.parametrize("flags", [[], OTHER], ids=["same", "other"])
def test_flags_with_other_values_are_named_with_both(toy, trained, tmp_path, flags):
    data, folder = tmp_path / "data", tmp_path / "run"
    shutil.copytree(trained, folder)
    shutil.copytree(toy.separate, data)
    done = train(data if flags else toy.separate, folder, *SAME, *flags)
    said = [line for line in (done.out + done.err).split("\n") if " goes on with " in line]
    assert len(said) == bool(flags)
    for line in said:
        assert f"{folder}/checkpoint_last.pt: the training goes on with " in line
        for part in ("--lr [0.02] (before: [", "--dropout 0.3 (before: ", "--seed 7 (before: "):
            assert part in line
        assert f"--data {data} (before: {toy.separate})" in line and "--max-tokens 700 (be" in line
