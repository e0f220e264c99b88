"""Work-arounds for fairseq as its commands see them: checkpoints, damaged and overridden."""

import io

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from support import commands, stock_runs
from support.stock_runs import PLUGIN, TINY

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints import reading as checkpoints
from fairseq_posenc.checkpoints import restricted

pytestmark = pytest.mark.journeys

folder, trained = stock_runs.folder, stock_runs.trained
SAFE_GLOBALS = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")


def test_only_load_differs_in_what_reads_checkpoints(trained):
    seen = checkpoint_utils.torch
    assert (seen.save, seen.device, seen.serialization) == (
        *(torch.save, torch.device, torch.serialization),
    )
    with open(str(trained), "rb") as file:
        state = seen.load(file, map_location="cpu", weights_only=False)
    assert state["model"].keys() == checkpoints.read_checkpoint(trained)["model"].keys()


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


def test_a_training_without_a_checkpoint_of_its_own_is_a_fresh_start(folder, tmp_path):
    own = tmp_path / "run" / "checkpoint_last.pt"  # as a job that is resumed names it
    flags = ("--save-dir", tmp_path / "run", "--restore-file", own)
    commands.succeed("train", folder / "data", *TINY, *flags)
    assert own.exists()


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


def test_another_dictionary_is_named(trained, folder, tmp_path):
    for language in "ab":
        (tmp_path / f"dict.{language}.txt").write_text("w1 1\n")
    flags = ("-s", "a", "-t", "b", "--path", trained, "--cpu", *PLUGIN)
    message = commands.run("interactive", tmp_path, *flags).message()
    assert str(trained) in message and "embed_tokens.weight" in message


@pytest.fixture
def rotary_checkpoint(trained, tmp_path):
    """Make a checkpoint that says its model was trained with rotary positions."""
    state = checkpoints.read_checkpoint(trained)
    model = state["cfg"]["model"]
    model.position_encoding, model.attention, model.linear_rotary = "rotary", "elu", "features"
    torch.save(state, str(tmp_path / "rotary.pt"))
    return str(tmp_path / "rotary.pt")


@pytest.mark.parametrize(
    "overrides", [{"dropout": 0.5}, {"position_encoding": "rotary", "attention": "elu"}, {}, None]
)
def test_overrides_that_keep_the_encoding_work(rotary_checkpoint, overrides):
    state = checkpoint_utils.load_checkpoint_to_cpu(rotary_checkpoint, overrides)
    assert state["cfg"].model.position_encoding == "rotary"
    assert state["cfg"].model.dropout == (overrides or {}).get("dropout", 0.1)


@pytest.mark.parametrize("nested", [True, False])
def test_overrides_cannot_change_the_encoding(rotary_checkpoint, trained, nested):
    overrides = {"position_encoding": "learned"}
    overrides = {"model": overrides} if nested else overrides
    for path, was in ((rotary_checkpoint, "rotary"), (str(trained), "not a model of this plug-in")):
        with pytest.raises(UsageError, match="train on with --finetune-from-model") as error:
            checkpoint_utils.load_checkpoint_to_cpu(path, overrides)
        assert "position_encoding='learned'" in str(error.value) and was in str(error.value)
    with pytest.raises(UsageError, match="attention='softmax': .* with 'elu'.* --attention softm"):
        checkpoint_utils.load_checkpoint_to_cpu(rotary_checkpoint, {"attention": "softmax"})


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
