"""Work-arounds for fairseq as the commands of fairseq see them."""

import io
import random
import shutil
import subprocess
from pathlib import Path

import commands
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

import fairseq_posenc
from fairseq_posenc.checkpoints import reading as checkpoints
from fairseq_posenc.errors import UsageError

PACKAGE = Path(fairseq_posenc.__file__).resolve().parent
PLUGIN = ("--user-dir", PACKAGE)
SIZES = [1, 7, 8, 9, 461]
TINY = [
    *("--cpu", "--arch", "transformer", "--encoder-layers", 1, "--decoder-layers", 1),
    *("--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8, "--encoder-attention-heads", 2),
    *("--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--decoder-attention-heads", 2),
    *("--optimizer", "adam", "--lr", 0.001, "--max-epoch", 1, "--num-workers", 0),
    *("--max-tokens", 200, *PLUGIN),
]
SAFE_GLOBALS = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")


def write_text(path, lines, longest=9):
    """Write *lines* random sentences of 2 to *longest* words in two languages."""
    words = [f"w{number}" for number in range(30)]
    text = [random.choices(words, k=random.randint(2, longest)) for _ in range(lines)]
    for language in "ab":
        Path(f"{path}.{language}").write_text(
            "".join(" ".join(line) + "\n" for line in text), encoding="utf-8"
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make toy data with test sets of every size, an empty and a long-winded training set."""
    folder = tmp_path_factory.mktemp("compat")
    random.seed(1)
    for name, lines, longest in (
        ("train", 40, 9),
        ("valid", 13, 9),
        *((f"test{size}", size, 9) for size in SIZES),
        ("empty", 0, 9),
        ("long", 5, 60),
    ):
        write_text(folder / name, lines, longest)
    tests = ",".join(str(folder / f"test{size}") for size in SIZES)
    pairs = ("-s", "a", "-t", "b", "--joined-dictionary")
    commands.succeed(
        *("preprocess", *pairs, "--destdir", folder / "data", "--trainpref", folder / "train"),
        *("--validpref", folder / "valid", "--testpref", tests),
    )
    for name, train, valid in (("empty", "empty", "valid"), ("long", "train", "long")):
        commands.succeed(
            *("preprocess", *pairs, "--destdir", folder / name, "--trainpref", folder / train),
            *("--validpref", folder / valid, "--srcdict", folder / "data" / "dict.a.txt"),
        )
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    """Train one epoch; return the checkpoint."""
    commands.succeed("train", folder / "data", *TINY, "--save-dir", folder / "run")
    return folder / "run" / "checkpoint_last.pt"


# No sentence is lost


@pytest.mark.parametrize("number, size", enumerate(SIZES))
def test_generate_translates_every_sentence(folder, trained, number, size):
    subset = f"test{number or ''}"
    flags = ("--path", trained, "--beam", 1, "--max-len-b", 3, "--gen-subset", subset, "--cpu")
    finished = commands.succeed("generate", folder / "data", *flags, *PLUGIN)
    assert sorted(finished.hypotheses()) == list(range(size))


def test_validation_scores_every_sentence(folder, trained):
    flags = ("--task", "translation", "--path", trained, "--max-tokens", 1000, "--cpu")
    log = commands.succeed("validate", folder / "data", *flags, "--log-format", "json", *PLUGIN)
    words = sum(len(line.split()) + 1 for line in (folder / "valid.b").read_text().splitlines())
    assert f'"valid_wpb": "{words}"' in log.out + log.err
    assert '"valid_bsz": "13"' in log.out + log.err


# Checkpoints


def test_only_load_differs_in_what_reads_checkpoints(trained):
    seen = checkpoint_utils.torch
    assert (seen.save, seen.device, seen.serialization) == (
        *(torch.save, torch.device, torch.serialization),
    )
    with open(str(trained), "rb") as file:
        state = seen.load(file, map_location="cpu", weights_only=False)
    assert state["model"].keys() == checkpoints.read_checkpoint(trained)["model"].keys()


@pytest.fixture
def broken(trained, tmp_path):
    """Return a function that makes a broken checkpoint of a kind."""

    def make(kind):
        path = tmp_path / f"{kind}.pt"
        if kind == "truncated":
            path.write_bytes(trained.read_bytes()[:3000])
        if kind == "folder":
            path.mkdir()
        if kind == "flipped":
            content = bytearray(trained.read_bytes())
            weights = checkpoints.read_checkpoint(trained)["model"]["encoder.layers.0.fc1.weight"]
            content[content.index(weights.numpy().tobytes()) + 3] ^= 1
            path.write_bytes(bytes(content))
        if kind == "forbidden":
            state = checkpoints.read_checkpoint(trained)
            state["extra_state"]["sampler"] = random.Random(1)
            torch.save(state, str(path))
        return path

    return make


WORDS = {
    "missing": "No such file",
    "truncated": "truncated",
    "folder": "Is a directory",
    "forbidden": "random.Random",
    "flipped": "the checksum of its part data/",
}


@pytest.mark.parametrize(
    "command, kind",
    [
        *(("generate", kind) for kind in WORDS),
        *((command, "truncated") for command in ("interactive", "validate", "eval_lm")),
    ],
)
def test_commands_say_what_is_wrong_with_a_checkpoint(folder, broken, command, kind):
    path = broken(kind)
    task = "language_modeling" if command == "eval_lm" else "translation"
    data = folder / "data"
    if command == "eval_lm":
        (data / "dict.txt").write_bytes((data / "dict.a.txt").read_bytes())
    finished = commands.run(
        *(command, data, "--task", task, "--path", path, "--cpu", "--max-tokens", 99, *PLUGIN)
    )
    assert str(path) in finished.message() and WORDS[kind] in finished.message()


@pytest.mark.parametrize(
    "flag, kind",
    [
        ("--restore-file", "missing"),
        ("--restore-file", "truncated"),
        ("--finetune-from-model", "missing"),
    ],
)
def test_training_does_not_start_from_nothing(folder, broken, tmp_path, flag, kind):
    path = broken(kind)
    flags = ("--arch", "posenc_transformer", "--save-dir", tmp_path / "run", flag, path)
    finished = commands.run("train", folder / "data", *TINY, *flags)
    assert str(path) in finished.message()
    assert "no such file" in finished.message() or WORDS[kind] in finished.message()
    assert not list(tmp_path.glob("run/*.pt"))


def test_a_damaged_last_checkpoint_names_the_one_to_go_on_from(trained, folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(str(trained.parent), str(run))
    last = run / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:5000])
    flags = ("train", folder / "data", *TINY, "--save-dir", run, "--max-epoch", 2)
    message = commands.run(*flags).message()
    command = f"cp {run / 'checkpoint1.pt'} {last}"
    assert "truncated or damaged" in message and message.endswith(command)
    subprocess.run(command.split(), check=True)
    finished = commands.succeed(*flags, "--log-format", "json")
    assert [entry["epoch"] for entry in finished.entries("train")] == [2]


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


def test_resuming_another_architecture_names_the_parameter(folder, trained, tmp_path):
    flags = ("--save-dir", tmp_path, "--restore-file", trained, "--encoder-ffn-embed-dim", 16)
    message = commands.run("train", folder / "data", *TINY, *flags).message()
    assert str(trained) in message and "encoder.layers.0.fc1" in message


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


@pytest.mark.parametrize("overrides", [{"dropout": 0.5}, {"position_encoding": "rotary"}, {}, None])
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


@pytest.mark.parametrize(
    "overrides, words",
    [
        ({"attention": "softmax"}, "attention='softmax': .* with 'elu'.* --attention softmax"),
        ({"linear_rotary": "inputs"}, "linear_rotary='inputs': .* with 'features'"),
        ({"attention": "elu", "linear_rotary": "features"}, None),
    ],
)
def test_nor_other_settings_without_parameters(rotary_checkpoint, overrides, words):
    if words is None:
        state = checkpoint_utils.load_checkpoint_to_cpu(rotary_checkpoint, overrides)
        assert state["cfg"].model.attention == "elu"
        return
    with pytest.raises(UsageError, match=words):
        checkpoint_utils.load_checkpoint_to_cpu(rotary_checkpoint, overrides)


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
    assert asked <= set(checkpoints.ALLOWED_GLOBALS)
    assert set(checkpoints.BROADCAST_GLOBALS) - asked <= {"builtins.dict", "builtins.list"}


# Data


@pytest.mark.parametrize(
    "data, flags, says",
    [
        ("empty", (), "train.a-b.a.bin: the train split has no sentence"),
        ("data", ("--max-source-positions", 1, "--max-target-positions", 1), "training split"),
        ("data", ("--max-tokens", 2), "--max-tokens 2"),
        (
            "long",
            ("--max-source-positions", 20, "--max-target-positions", 20),
            "--skip-invalid-size-inputs-valid-test",
        ),
        ("long", ("--max-tokens-valid", 10), "--max-tokens"),
    ],
)
def test_data_that_cannot_be_used_is_one_line(folder, tmp_path, data, flags, says):
    finished = commands.run("train", folder / data, *TINY, *flags, "--save-dir", tmp_path)
    assert says in finished.message()


def test_too_few_tokens_for_a_test_sentence(folder, trained):
    flags = ("--path", trained, "--max-tokens", 3, "--cpu", *PLUGIN)
    assert "--max-tokens" in commands.run("generate", folder / "data", *flags).message()


def test_command_line_with_another_spelling_of_the_folder(folder, trained, tmp_path):
    link = tmp_path / "fairseq_posenc"
    link.symlink_to(PACKAGE)
    flags = ("--path", trained, "--cpu", "--beam", 1, "--max-len-b", 3, "--user-dir", f"{link}/")
    assert commands.succeed("generate", folder / "data", *flags).hypotheses()


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


def test_perplexity_is_of_every_token(folder, language_model):
    data, path = language_model
    flags = ("--tokens-per-sample", 16, "--context-window", 5, "--batch-size", 1)
    finished = commands.succeed("eval_lm", data, "--path", path, "--cpu", *flags, *PLUGIN)
    tokens = sum(len(line.split()) + 1 for line in (folder / "test9.a").read_text().splitlines())
    assert f"Evaluated {tokens} tokens" in finished.out + finished.err


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
