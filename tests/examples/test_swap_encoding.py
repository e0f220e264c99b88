"""Another position encoding for a trained model: from fairseq's checkpoint to the table."""

import re

import pytest
import torch
from support import stock_runs
from support.commands import read
from support.recipes import EXAMPLES, bash, succeed

folder, trained = stock_runs.folder, stock_runs.trained

SWAP = EXAMPLES / "swap_encoding" / "run.sh"
SMALL = ["--validate-interval-updates", "2", "--max-tokens", "200", "--cpu", "--num-workers", "0"]


@pytest.mark.parametrize("part", ["attention", "lora"])
def test_fairseqs_transformer_becomes_a_roformer(part, folder, trained, tmp_path):
    given = {"PART": part, "UPDATES": "4"}
    words = ["rotary", trained, folder / "data", "out", *SMALL]
    result = succeed(SWAP, *words, cwd=tmp_path, **given)
    rows = re.findall(r"^(model|\d+)\t([\d.]+)\t(\S*)$", result.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == ["model", "0", "2", "4"]
    original = float(rows[0][1])
    for _, loss, more in rows[1:]:
        assert float(loss) - original == pytest.approx(float(more), abs=2e-3)
    assert "won back" in result.stdout
    before, (after, settings) = read(trained)[0], read(tmp_path / "out" / "checkpoint_last.pt")
    assert settings["position_encoding"] == "rotary"
    if part == "attention":
        kept = {name for name in before if "attn" not in name and name in after}
        assert kept and all(torch.equal(before[name], after[name]) for name in kept)
    else:
        assert {name for name in after if ".lora_" not in name} == {"low_rank_base"}


def test_mistakes_are_one_line(tmp_path):
    refused = bash(SWAP, "rotary", "x.pt", "data", "out", cwd=tmp_path, PART="norms")
    assert refused.stderr == "run.sh: PART=norms: expected all, attention or lora\n"
    missing = bash(SWAP, "rotary", "x.pt", "data", "out", cwd=tmp_path)
    assert missing.returncode == 1 and missing.stderr.count("\n") == 1 and "x.pt" in missing.stderr
    assert not list(tmp_path.iterdir())
