"""Generated tasks through fairseq's commands, in every family of models."""

import re

import pytest
from support.commands import run, shape, succeed
from support.made_up_tasks import TASKS_DIR, writing

from fairseq_posenc.checkpoints.loader import load

BLOCKS = ["--tokens-per-sample", "32", "--sample-break-mode", "eos"]
LANGUAGES = ["--source-lang", "input", "--target-lang", "output"]
TINY = {
    "translation": ["--arch", "posenc_transformer", *shape(1, 16, 16, 2), *LANGUAGES],
    "language_modeling": ["--arch", "posenc_lm", *shape(1, 16, 16, 2, "decoder"), *BLOCKS],
    "masked_lm": ["--arch", "posenc_masked_lm", *shape(1, 16, 16, 2, "encoder"), *BLOCKS],
}
TRAINING = [
    *("--cpu", "--num-workers", "0", "--optimizer", "adam", "--lr", "0.01", "--batch-size", "16"),
    *("--criterion", "answer_cross_entropy", "--no-epoch-checkpoints", "--log-format", "json"),
    *("--dropout", "0", "--attention-dropout", "0"),
]
TESTED = "length1,length3"


@pytest.mark.parametrize("family", TINY)
def test_a_family_learns_and_is_tested_by_length(family, tmp_path):
    """What the training has learned in its last update, another process finds in the checkpoint."""
    data, save = tmp_path / "data", tmp_path / "save"
    words = ["--lengths", "1-2", "--test-lengths", "1,3", "--samples", "160", "--family", family]
    writing.main(["copy_repeats", str(data), *words])
    task = ["--task", family, *TINY[family]]
    trained = succeed(
        "train", data, *TASKS_DIR, *task, *TRAINING, "--max-update", "30", "--save-dir", save
    )
    first, last = (trained.entries("valid")[place] for place in (0, -1))
    assert float(last["valid_loss"]) < float(first["valid_loss"])
    path = save / "checkpoint_last.pt"
    log = ["--log-format", "json", "--cpu", "--batch-size", "16", "--num-workers", "0"]
    subsets = f"valid,{TESTED}"
    given = ["--task", family, "--path", path, "--valid-subset", subsets]
    tested = succeed("validate", data, *TASKS_DIR, *given, *log)
    for subset in subsets.split(","):
        (value,) = re.findall(rf'"{subset}_exact_match": "?([\d.]+)', tested.out + tested.err)
        if family == "language_modeling":
            assert float(value) == pytest.approx(answered(path, data, subset), abs=0.01)
        assert subset != "valid" or float(value) == float(last["valid_exact_match"])


def answered(path, data, subset):
    """The percentage of lines that a language model continues rightly after ``<answer>``."""
    loaded = load(str(path), overrides={"data": str(data)})
    loaded.task.load_dataset(subset)
    symbol, right = loaded.task.source_dictionary.index("<answer>"), []
    for line in loaded.task.dataset(subset):
        (start,) = (line["source"] == symbol).nonzero()[0].tolist()
        said = loaded.model(line["source"][None])[0][0].argmax(-1)
        right.append(bool((said == line["target"])[start:].all()))
    assert 0 < len(right)
    return 100 * sum(right) / len(right)


def test_exact_match_is_that_of_greedy_search(tmp_path):
    """A translation model that is right at times: as often by the criterion as by generating."""
    data, save = tmp_path / "data", tmp_path / "save"
    words = ["--lengths", "1-4", "--test-lengths", "3", "--samples", "640"]
    writing.main(["sort", str(data), *words, "--family", "translation"])
    task = ["--task", "translation", *TINY["translation"], "--position-encoding", "rotary"]
    succeed("train", data, *TASKS_DIR, *task, *TRAINING, "--max-update", "100", "--save-dir", save)
    path = save / "checkpoint_last.pt"
    log = ["--log-format", "json", "--cpu", "--num-workers", "0", "--batch-size", "16"]
    tested = succeed(
        "validate", data, *TASKS_DIR, *task[:2], "--path", path, "--valid-subset", "length3", *log
    )
    (value,) = re.findall(r'"length3_exact_match": "?([\d.]+)', tested.out + tested.err)
    done = run(
        "generate", data, *TASKS_DIR, "--path", path, "--gen-subset", "length3", "--beam", "1",
        "--cpu", "--num-workers", "0", "--batch-size", "16", "--required-batch-size-multiple", "1",
    )  # fmt: skip
    targets = dict(re.findall(r"^T-(\d+)\t(.*)$", done.out, re.MULTILINE))
    said = {number: found[0][1] for number, found in done.hypotheses().items()}
    right = [said[int(number)] == text for number, text in targets.items()]
    assert 0.1 < sum(right) / len(right) < 1
    assert float(value) == pytest.approx(100 * sum(right) / len(right), abs=0.006)
