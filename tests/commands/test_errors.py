"""What a user can get wrong: one line that names the flag or file, no traceback, no output."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import SEARCH, SMALL, TRAINING, USER_DIR, Finished, posenc, run

pytest_plugins = ["support.toy"]

GENERIC = ["--arch", "posenc_transformer", *SMALL]
ROFORMER = ["--arch", "roformer_tiny", *SMALL]
MULTILINGUAL = ["--arch", "multilingual_roformer", *SMALL]


def message_of_training(data, folder, *flags):
    """The one line with which a training refuses to start; it must leave nothing behind."""
    save_dir = folder / "checkpoints"
    finished = run("train", data, *USER_DIR, "--save-dir", save_dir, *TRAINING, *flags)
    assert not list(save_dir.rglob("*"))
    return finished.message()


@pytest.mark.parametrize(
    "flags, named",
    [
        (
            [*GENERIC, "--position-encoding", "rotari"],
            ["--position-encoding rotari", "unknown encoding", "rotary"],
        ),
        (
            [*ROFORMER, "--encoder-embed-dim", "18"],
            ["rotary", "head size 9 of the encoder is odd", "--encoder-attention-heads"],
        ),
        (
            [*ROFORMER, "--decoder-embed-dim", "20", "--decoder-attention-heads", "4"],
            ["rotary", "head size 5 of the decoder is odd", "--decoder-attention-heads"],
        ),
        (
            [*ROFORMER, "--encoder-attention-heads", "3"],
            ["--encoder-attention-heads 3", "--encoder-embed-dim 16"],
        ),
        ([*ROFORMER, "--rotary-fraction", "1.5"], ["--rotary-fraction 1.5"]),
        ([*ROFORMER, "--rotary-pairing", "zigzag"], ["--rotary-pairing zigzag", "half"]),
        ([*ROFORMER, "--rotary-base", "0.5"], ["--rotary-base 0.5"]),
        (
            [*ROFORMER, "--position-encoding", "alibi", "--rotary-base", "500"],
            ["--rotary-base 500.0: has no effect with --position-encoding alibi", "add rotary"],
        ),
        ([*ROFORMER, "--position-encoding", ""], ["--position-encoding '': is empty"]),
        ([*ROFORMER, "--alignment-heads", "0"], ["--alignment-heads 0: must be at least 1"]),
        (
            [*ROFORMER, "--encoder-learned-pos"],
            ["--encoder-learned-pos", "--position-encoding rotary", "learned+rotary"],
        ),
        (
            [*GENERIC, "--position-encoding", "learned", "--no-token-positional-embeddings"],
            ["--no-token-positional-embeddings", "--position-encoding learned"],
        ),
        (
            [*GENERIC, "--position-encoding", "learned+sinusoidal"],
            ["--position-encoding learned+sinusoidal", "keep one"],
        ),
        ([*GENERIC, "--position-encoding", "none+rotary"], ["none cannot be combined"]),
        ([*ROFORMER, "--cross-self-attention"], ["--cross-self-attention", "drop it"]),
        (
            [*ROFORMER, "--task", "language_modeling"],
            ["--arch roformer_tiny", "--task language_modeling", "--arch roformer_lm_small"],
        ),
        (
            [*ROFORMER, "--task", "masked_lm"],
            ["--arch roformer_tiny", "--task masked_lm", "for example --arch"],
        ),
        (
            MULTILINGUAL,
            ["--arch multilingual_roformer", "multilingual_translation", "--task translation"],
        ),
        ([*ROFORMER, "--restore-file", "absent.pt"], ["--restore-file absent.pt", "no such file"]),
        (
            [*ROFORMER, "--finetune-from-model", "absent.pt"],
            ["--finetune-from-model absent.pt", "no such file"],
        ),
        ([*ROFORMER, "--max-tokens", "3"], ["--max-tokens", "max_tokens=3"]),
    ],
)
def test_flags_that_cannot_work(flags, named, toy, tmp_path):
    message = message_of_training(toy.separate, tmp_path, *flags)
    for text in named:
        assert text in message


def test_a_checkpoint_of_another_size(toy, trained, tmp_path):
    checkpoint = trained / "checkpoint_last.pt"
    flags = [*ROFORMER, "--encoder-embed-dim", "32", "--restore-file", checkpoint]
    message = message_of_training(toy.separate, tmp_path, *flags)
    assert str(checkpoint) in message
    assert "size mismatch for encoder.embed_tokens.weight" in message


def test_an_empty_training_file(toy, tmp_path):
    for name in ("train.src", "train.tgt"):
        (tmp_path / name).touch()
    dictionaries = ["--srcdict", toy.separate / "dict.src.txt"]
    dictionaries += ["--tgtdict", toy.separate / "dict.tgt.txt"]
    files = ["--trainpref", tmp_path / "train", "--validpref", toy.text / "valid"]
    binary = tmp_path / "binary"
    run("preprocess", "-s", "src", "-t", "tgt", *files, *dictionaries, "--destdir", binary)
    message = message_of_training(binary, tmp_path, *ROFORMER)
    assert "train" in message and "no sentence" in message


@pytest.fixture(scope="module")
def damaged(trained, tmp_path_factory):
    """Checkpoints that cannot be read, by what is wrong with them."""
    folder = tmp_path_factory.mktemp("damaged")
    whole = (trained / "checkpoint_last.pt").read_bytes()
    (folder / "truncated.pt").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.pt").touch()
    (folder / "foreign.pt").write_text("hello")
    return folder


@pytest.mark.parametrize(
    "command, name",
    [
        *(("generate", name) for name in ("absent.pt", "truncated.pt", "empty.pt", "foreign.pt")),
        *((command, "truncated.pt") for command in ("interactive", "validate", "train")),
    ],
)
def test_a_checkpoint_that_cannot_be_read(command, name, toy, damaged, tmp_path):
    path = damaged / name
    if command == "train":
        message = message_of_training(toy.separate, tmp_path, *ROFORMER, "--restore-file", path)
    else:
        flags = ["--cpu", "--path", path]
        if command == "validate":
            flags += ["--task", "translation", "--max-tokens", "100"]
        message = run(command, toy.separate, *USER_DIR, *flags).message()
    assert str(path) in message


def test_averaging_a_checkpoint_that_cannot_be_read(trained, damaged, tmp_path):
    inputs = [trained / "checkpoint_last.pt", damaged / "truncated.pt"]
    output = tmp_path / "average.pt"
    message = posenc("average", "--inputs", *inputs, "--output", output).message()
    assert str(inputs[1]) in message
    assert not list(tmp_path.iterdir())


def test_one_model_of_an_ensemble_is_missing(toy, trained):
    paths = f"{trained / 'checkpoint_last.pt'}:absent.pt"
    finished = run("generate", toy.separate, *USER_DIR, "--path", paths, *SEARCH)
    assert "absent.pt" in finished.message()


def test_the_data_of_another_model(toy, trained):
    flags = ["--path", trained / "checkpoint_last.pt", *SEARCH]
    message = run("generate", toy.joined, *USER_DIR, *flags).message()
    assert str(trained / "checkpoint_last.pt") in message and "dictionaries" in message


def test_another_encoding_for_a_trained_model(toy, trained):
    flags = ["--path", trained / "checkpoint_last.pt", *SEARCH]
    overrides = ["--model-overrides", "{'position_encoding': 'learned'}"]
    message = run("generate", toy.separate, *USER_DIR, *flags, *overrides).message()
    assert "position_encoding='learned'" in message and "'rotary'" in message


def test_installed_command_and_user_dir_with_a_trailing_slash(toy, tmp_path):
    """In a process of its own, started as a user starts it."""
    command = Path(sys.executable).with_name("fairseq-train")
    if not command.exists():
        pytest.skip("fairseq's commands are not installed beside this Python")
    arguments = [toy.separate, "--user-dir", USER_DIR[1] + "/", "--save-dir", tmp_path / "none"]
    odd = ["--arch", "roformer_tiny", "--encoder-embed-dim", "20"]
    words = [str(word) for word in (command, *arguments, *TRAINING, *odd)]
    process = subprocess.run(words, capture_output=True, text=True)
    finished = Finished(process.returncode, process.stdout, process.stderr)
    assert "head size 5 of the encoder is odd" in finished.message()
    assert not (tmp_path / "none").exists()
