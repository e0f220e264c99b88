"""What checkpoints record of their run and its stages; checkpoints at remote addresses."""

import shutil
from argparse import Namespace

import pytest
from support.commands import (
    ROOT,
    SMALL,
    TRAINING,
    USER_DIR,
    posenc,
    read,
    run,
    shape,
    succeed,
    train,
)
from support.warm_starts import FRESH

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.run_record import check_direction
from fairseq_posenc.models.masked_lm import MODEL

pytest_plugins = ["support.toy", "support.toy_lm"]
pytestmark = pytest.mark.journeys

ROFORMER = ["--arch", "roformer_tiny", *SMALL]


def record(path):
    return read_checkpoint(path)["extra_state"]["fairseq_posenc"]


def test_a_resumed_run_keeps_its_identifier_and_another_has_another(toy, trained, tmp_path):
    for name in ("one", "moved"):
        shutil.copytree(str(trained), str(tmp_path / name))
    other = ["--lr", "0.02", "--dropout", "0.3", "--max-tokens", "700", "--seed", "7"]
    done = train(toy.separate, tmp_path / "moved", *ROFORMER, "--max-epoch", "11", *other)
    (said,) = (line for line in (done.out + done.err).split("\n") if " continues with " in line)
    for part in ("--lr [0.02] (before: [", "--dropout 0.3 (before: ", "--seed 7 (before: "):
        assert part in said
    assert "--max-tokens 700 (before: " in said and "--max-epoch" not in said
    start = ["--finetune-from-model", trained / "checkpoint_last.pt", "--max-epoch", "1"]
    train(toy.separate, tmp_path / "other", *ROFORMER, *start)
    names = ("one/checkpoint10.pt", "moved/checkpoint11.pt", "other/checkpoint1.pt")
    paths = [tmp_path / name for name in names]
    runs = [record(path)["run"] for path in paths]
    assert runs[0] == runs[1] != runs[2]
    output = ["--output", tmp_path / "average.pt"]
    assert posenc("average", "--inputs", *paths[:2], *output).status == 0
    message = posenc("average", "--inputs", *paths[1:], *output).message()
    assert f"{paths[2]}: is not of the same training run as {paths[1]}" in message


def test_a_dictionary_in_another_order_is_refused(toy, trained, tmp_path):
    permuted = tmp_path / "permuted"
    shutil.copytree(str(toy.separate), str(permuted))
    first, second, *others = (permuted / "dict.tgt.txt").read_text().splitlines()
    (permuted / "dict.tgt.txt").write_text("\n".join([second, first, *others]) + "\n")
    last = trained / "checkpoint_last.pt"
    words = "was trained with a different target dictionary of 24 words"
    assert words in run("generate", permuted, *USER_DIR, "--path", last, "--cpu").message()
    resumed = tmp_path / "resumed"
    shutil.copytree(str(trained), str(resumed))
    flags = [*USER_DIR, *TRAINING, *ROFORMER, "--max-epoch", "11"]
    assert words in run("train", permuted, *flags, "--save-dir", resumed).message()
    start = ["--finetune-from-model", last, "--save-dir", tmp_path / "new", "--max-epoch", "1"]
    warned = run("train", permuted, *flags, *start)
    assert warned.status == 0 and f"warm start: {last}: {words}" in warned.out + warned.err


def languages(source, target):
    return Namespace(source_lang=source, target_lang=target)


@pytest.mark.parametrize("recorded", [True, False], ids=["inferred", "given"])
def test_a_model_does_not_translate_in_the_other_direction(recorded):
    given = languages(None, None) if recorded else languages("a", "b")
    record = {"fairseq_posenc": {"languages": ["a", "b"]}} if recorded else {}
    checkpoint = {"cfg": {"task": vars(given)}, "extra_state": record}
    check_direction("x.pt", checkpoint, Namespace(cfg=languages("a", "b")))
    check_direction("x.pt", checkpoint, Namespace(cfg=languages("c", "b")))  # renamed
    with pytest.raises(UsageError, match="--source-lang b --target-lang a: x.pt was trained to"):
        check_direction("x.pt", checkpoint, Namespace(cfg=languages("b", "a")))


# --- addresses that fairseq's PathManager fetches


STORE = """
import os
from fairseq.file_io import PathManager

def local(path, **kwargs):
    return path.replace("mem://", os.environ["STORE"] + "/")

PathManager.get_local_path = staticmethod(local)
PathManager.isfile = staticmethod(lambda path: os.path.isfile(local(path)))
PathManager.exists = staticmethod(lambda path: os.path.exists(local(path)))
import fairseq_posenc
"""


def test_training_starts_from_a_remote_checkpoint(toy, trained, tmp_path, monkeypatch):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "__init__.py").write_text(STORE)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("STORE", str(trained))
    flags = [toy.separate, "--user-dir", tmp_path / "store", *TRAINING, "--arch", "roformer_tiny"]
    flags += [*SMALL, "--save-dir", tmp_path / "run", "--finetune-from-model"]
    finished = succeed("train", *flags, "mem://checkpoint_last.pt", "--max-update", 1)
    assert "mem://checkpoint_last.pt" in finished.out + finished.err
    assert read(tmp_path / "run" / "checkpoint_last.pt")
    message = run("train", *flags, "mem://none.pt", "--save-dir", tmp_path / "new").message()
    assert "--finetune-from-model mem://none.pt: no such file" in message


# --- stages of several lengths


TASK = ["--task", "masked_lm", "--sample-break-mode", "none"]
SHAPE = ["--arch", MODEL, "--position-encoding", "rotary", "--criterion", "masked_lm"]
SHAPE += shape(1, 16, 24, 2, "encoder")


def test_a_model_keeps_the_longest_length_of_its_stages(corpus, tmp_path):
    """Later stages use a new folder, the same folder again, and a third without optimizer state."""
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    last = "checkpoint_last.pt"
    for folder, length, longest, flags in (
        (one, 16, 16, []),
        (two, 48, 48, ["--finetune-from-model", one / last]),
        (two, 8, 48, ["--max-epoch", 2]),
        (three, 16, 48, ["--restore-file", two / last, *FRESH]),
    ):
        log = train(corpus, folder, *TASK, *SHAPE, "--tokens-per-sample", length, *flags)
        assert "warm start" not in log.out + log.err and "longer than the" not in log.out + log.err
        kept = read(folder / last)[1]
        assert (kept["rotary_original_length"], kept["num_positions"]) == (longest, longest)
    said = {}
    for length in (48, 96):
        flags = ["--cpu", "--num-workers", "0", "--batch-size", "2", *TASK]
        flags += ["--path", three / last, "--tokens-per-sample", length]
        flags += ["--model-overrides", str({"max_positions": length, "tokens_per_sample": length})]
        finished = succeed("validate", corpus, *USER_DIR, *flags)
        said[length] = finished.out + finished.err
    assert "longer than the" not in said[48] and "longer than the 48 tokens" in said[96]
