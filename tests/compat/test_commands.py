"""Work-arounds for faults of fairseq's commands: data, language models, checkpoints, logs."""

import pytest
import torch
from support import commands
from support.commands import USER_DIR as PLUGIN
from support.toy import STOCK
from support.toy_lm import eval_lm

from fairseq_posenc.checkpoints import reading as checkpoints

pytest_plugins = ["support.toy", "support.toy_lm"]
pytestmark = pytest.mark.journeys


def test_perplexity_of_the_rest_is_given_on_request(corpus, trained_lm):
    lengths = [len(line.split()) + 1 for line in (corpus / "valid").read_text().splitlines()]
    longest = sorted(lengths)[len(lengths) // 2]
    flags = ["--sample-break-mode", "eos", "--skip-invalid-size-inputs-valid-test"]
    flags += ["--tokens-per-sample", 99, "--model-overrides"]
    few, none = (
        eval_lm(corpus, trained_lm("rotary"), *flags, str({"max_target_positions": most}))
        for most in (longest, 1)
    )
    tokens = sum(length for length in lengths if length <= longest)
    assert tokens < sum(lengths) and f"Evaluated {tokens} tokens" in few.out + few.err
    assert "all of its blocks are skipped as too long" in none.message()


def test_diverse_beams_of_a_sentence_do_not_depend_on_its_batch(toy, stock):
    search = ("--path", stock, "--beam", 4, "--max-len-b", 6, "--cpu", *PLUGIN)
    search += ("--diverse-beam-groups", 2, "--gen-subset", "test1")
    one, all_of_them = (
        commands.succeed("generate", toy.joined, *search, "--batch-size", size).hypotheses()
        for size in (1, 9)
    )
    assert len(one) == 9 and one.keys() == all_of_them.keys()
    for number, found in one.items():
        assert [text for _, text in found] == [text for _, text in all_of_them[number]]


def test_a_model_registered_elsewhere_is_read_under_the_name_that_is_given(toy, stock, tmp_path):
    path = tmp_path / "elsewhere.pt"
    state = checkpoints.read_checkpoint(stock)
    state["cfg"]["model"]._name = state["cfg"]["model"].arch = "transformer_base18L"
    torch.save(state, str(path))
    flags = ("--cpu", "--max-tokens", 99, "--gen-subset", "test1", *PLUGIN)
    generate = ("generate", toy.joined, *flags, "--path")
    said = commands.run(*generate, path).message()
    assert f"{path}: is of --arch transformer_base18L" in said and "'arch': 'transformer'" in said
    named = commands.succeed(*generate, path, "--model-overrides", "{'arch': 'transformer'}")
    assert named.hypotheses() == commands.succeed(*generate, stock).hypotheses()
    other = commands.run(*generate, path, "--model-overrides", "{'arch': 'transformer_lm'}")
    assert "arch='transformer_lm'" in other.message()


def test_a_log_file_holds_every_line_once(toy, tmp_path):
    log = tmp_path / "train.log"
    flags = ["--max-epoch", "3", "--log-file", log, "--no-save"]
    commands.train(toy.joined, tmp_path, *STOCK, *flags)
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    for epoch in (1, 2, 3):
        of_epoch = [line for line in lines if f'"epoch": {epoch},' in line]
        for kind in ("train_wall", "valid_loss", "train_loss"):  # updates, validation, epoch
            assert any(kind in line for line in of_epoch), (epoch, kind)
    assert len(set(lines)) == len(lines)
