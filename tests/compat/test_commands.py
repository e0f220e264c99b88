"""Work-arounds for fairseq as its commands see them: data, language models, checkpoints."""

import io

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from support import commands, stock_runs
from support.stock_runs import PLUGIN, SIZES, TINY

from fairseq_posenc.checkpoints import reading as checkpoints
from fairseq_posenc.checkpoints import restricted

pytestmark = pytest.mark.journeys

folder, trained = stock_runs.folder, stock_runs.trained

# No sentence is lost


@pytest.mark.parametrize("number, size", enumerate(SIZES))
def test_generate_translates_every_sentence(folder, trained, number, size):
    subset = f"test{number or ''}"
    flags = ("--path", trained, "--beam", 1, "--max-len-b", 3, "--gen-subset", subset, "--cpu")
    finished = commands.succeed("generate", folder / "data", *flags, *PLUGIN)
    assert sorted(finished.hypotheses()) == list(range(size))


# Data


@pytest.mark.parametrize(
    "data, flags, says",
    [
        ("empty", (), "cannot mmap an empty file"),
        (
            "long",
            ("--max-source-positions", 20, "--max-target-positions", 20),
            "--skip-invalid-size-inputs-valid-test",
        ),
        ("long", ("--max-tokens-valid", 10), "raise --max-tokens"),
    ],
)
def test_data_that_cannot_be_used_end_a_training(folder, tmp_path, data, flags, says):
    finished = commands.run("train", folder / data, *TINY, *flags, "--save-dir", tmp_path)
    assert finished.status and says in finished.err
    assert not list(tmp_path.iterdir())


# Language models


@pytest.fixture(scope="module")
def language_model(folder):
    """Train a language model of 16 positions; return its data and its checkpoint."""
    data, run = folder / "lm", folder / "lm-run"
    commands.succeed(
        *("preprocess", "--only-source", "--destdir", data, "--trainpref", folder / "train.a"),
        *("--validpref", folder / "valid.a", "--testpref", folder / "test9.a"),
    )
    commands.succeed(
        *("train", data, "--cpu", "--task", "language_modeling", "--arch", "transformer_lm"),
        *("--decoder-layers", 1, "--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8),
        *("--decoder-attention-heads", 2, "--optimizer", "adam", "--max-epoch", 1, *PLUGIN),
        *("--tokens-per-sample", 16, "--max-tokens", 200, "--save-dir", run, "--num-workers", 0),
    )
    return data, run / "checkpoint_last.pt"


@pytest.mark.parametrize("tokens", [None, 17])
def test_perplexity_of_text_left_out_is_an_error(language_model, tokens):
    data, path = language_model
    flags = ("--tokens-per-sample", tokens) if tokens else ()
    message = commands.run("eval_lm", data, "--path", path, "--cpu", *flags, *PLUGIN).message()
    assert "--tokens-per-sample 16" in message


def test_perplexity_of_the_rest_is_given_on_request(folder, language_model):
    data, path = language_model
    flags = ["--path", path, "--cpu", "--sample-break-mode", "eos", "--tokens-per-sample", 17]
    flags += ["--skip-invalid-size-inputs-valid-test", *PLUGIN]
    few = ["--model-overrides", str({"max_target_positions": 6})]
    finished = commands.succeed("eval_lm", data, *flags, *few)
    lines = (folder / "test9.a").read_text().splitlines()
    tokens = sum(len(line.split()) + 1 for line in lines if len(line.split()) < 6)
    assert 0 < tokens < sum(len(line.split()) + 1 for line in lines)
    assert f"Evaluated {tokens} tokens" in finished.out + finished.err
    none = ["--model-overrides", str({"max_target_positions": 1})]
    message = commands.run("eval_lm", data, *flags, *none).message()
    assert "all of its blocks are skipped as too long" in message


# Diverse beam search


def test_diverse_beams_of_a_sentence_do_not_depend_on_its_batch(folder, trained):
    search = ("--path", trained, "--beam", 4, "--max-len-b", 6, "--cpu", *PLUGIN)
    search += ("--diverse-beam-groups", 2, "--gen-subset", "test3")
    one, all_of_them = (
        commands.succeed("generate", folder / "data", *search, "--batch-size", size).hypotheses()
        for size in (1, 9)
    )
    assert len(one) == 9 and one.keys() == all_of_them.keys()
    for number, found in one.items():
        assert [text for _, text in found] == [text for _, text in all_of_them[number]]


# --- checkpoints


SAFE_GLOBALS = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")


def test_a_model_registered_elsewhere_is_read_under_the_name_that_is_given(
    folder, trained, tmp_path
):
    path = tmp_path / "elsewhere.pt"
    state = checkpoints.read_checkpoint(trained)
    state["cfg"]["model"]._name = state["cfg"]["model"].arch = "transformer_base18L"
    torch.save(state, str(path))
    flags = ("--cpu", "--max-tokens", 99, "--gen-subset", "test1", *PLUGIN)
    generate = ("generate", folder / "data", *flags, "--path")
    said = commands.run(*generate, path).message()
    assert f"{path}: is of --arch transformer_base18L" in said and "'arch': 'transformer'" in said
    named = commands.succeed(*generate, path, "--model-overrides", "{'arch': 'transformer'}")
    assert named.hypotheses() == commands.succeed(*generate, trained).hypotheses()
    other = commands.run(*generate, path, "--model-overrides", "{'arch': 'transformer_lm'}")
    assert "arch='transformer_lm'" in other.message()


def test_stock_models_start_anew_where_the_file_to_restore_is_absent(folder, tmp_path):
    """fairseq's idiom for not resuming in a folder, which its own tests use."""
    absent = tmp_path / "x.pt"
    flags = ("--save-dir", tmp_path, "--restore-file", absent)
    finished = commands.succeed("train", folder / "data", *TINY, *flags)
    assert (
        f"--restore-file {absent}: no such file; training starts anew"
        in finished.out + finished.err
    )


def test_a_log_file_holds_every_line_once(folder, tmp_path):
    log = tmp_path / "train.log"
    flags = ["--save-dir", tmp_path, "--max-epoch", "3", "--log-file", log, "--log-interval", "1"]
    commands.succeed("train", folder / "data", *TINY, *flags, "--log-format", "json", "--no-save")
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    for epoch in (1, 2, 3):
        of_epoch = [line for line in lines if f'"epoch": {epoch},' in line]
        for kind in ("train_wall", "valid_loss", "train_loss"):  # updates, validation, epoch
            assert any(kind in line for line in of_epoch), (epoch, kind)
    assert len(set(lines)) == len(lines)


@pytest.mark.skipif(not SAFE_GLOBALS, reason="torch.load is not restricted by default before 2.6")
def test_what_rank_0_sends_to_the_others_loads_there(trained):
    sent = checkpoint_utils.load_checkpoint_to_cpu(str(trained))
    buffer = io.BytesIO()
    torch.save(distributed_utils._split_tensors_from_obj(sent, []), buffer)
    buffer.seek(0)
    assert torch.load(buffer)["cfg"] == sent["cfg"]
    buffer.seek(0)
    asked = set()
    saved = torch.serialization.get_safe_globals()
    try:
        torch.serialization.clear_safe_globals()
        asked = set(torch.serialization.get_unsafe_globals_in_checkpoint(buffer))
    finally:
        torch.serialization.add_safe_globals(saved)
    assert asked <= set(restricted.ALLOWED_GLOBALS)
    assert set(restricted.BROADCAST_GLOBALS) - asked <= {"builtins.dict", "builtins.list"}
