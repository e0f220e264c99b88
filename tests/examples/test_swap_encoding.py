"""Another position encoding for a trained model: from fairseq's checkpoint to the table."""

import re

import pytest
import torch
from support import stock_runs
from support.commands import read
from support.recipes import EXAMPLES, bash, commands, succeed

folder, trained = stock_runs.folder, stock_runs.trained

SWAP = EXAMPLES / "swap_encoding" / "swap.sh"
SMALL = ["--updates", "4", "--validate-every", "2", "--max-tokens", "200", "--cpu"]


@pytest.mark.parametrize("part", ["attention", "lora"])
def test_fairseqs_transformer_becomes_a_roformer(part, folder, trained, tmp_path):
    options = ["--encoding", "rotary", "--part", part, *SMALL]
    options += ["--rank", "2"] if part == "lora" else []
    result = succeed(SWAP, trained, folder / "data", "out", *options, cwd=tmp_path)
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
    again = bash(SWAP, trained, folder / "data", "out", *options, cwd=tmp_path)
    assert "already trained" in again.stderr and again.stdout == result.stdout


def test_a_dry_run_shows_the_commands(tmp_path):
    result = succeed(SWAP, "x.pt", "data", "out", "--part", "attention", "--dry-run", cwd=tmp_path)
    names = [words[0] for words in commands(result)]
    assert names[:2] == ["fairseq-validate", "fairseq-train"]
    assert "--train-only attention" in result.stdout + result.stderr
    assert not list(tmp_path.iterdir())
