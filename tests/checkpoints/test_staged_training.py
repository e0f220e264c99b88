"""Pre-training in stages of different lengths, as RoFormer's Table 4, in small numbers."""

import pytest
from support.commands import TRAINING, USER_DIR, read, shape, succeed

from fairseq_posenc.models.masked_lm import MODEL

pytest_plugins = ["support.toy", "support.toy_lm"]

STAGES = (16, 48, 8)  # in the paper 512, 1536, 256, 128, 1536, 512
TASK = ["--task", "masked_lm", "--sample-break-mode", "none"]
SHAPE = ["--arch", MODEL, "--position-encoding", "rotary", "--criterion", "masked_lm"]
SHAPE += shape(1, 16, 24, 2, "encoder")
FRESH = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]


def stage(corpus, folder, length, *flags):
    usual = [*TRAINING, *TASK, *SHAPE, "--save-dir", folder, "--tokens-per-sample", length]
    finished = succeed("train", corpus, *USER_DIR, *usual, *flags)
    return finished.out + finished.err


def goes_on_in_its_folder(folder, number):
    return folder, ["--max-epoch", number + 1]


def goes_on_in_another_folder(folder, number):
    before = folder / str(number - 1) / "checkpoint_last.pt"
    return folder / str(number), ["--finetune-from-model", before] if number else []


def restores_without_the_optimizer(folder, number):
    flags = ["--restore-file", folder / str(number - 1) / "checkpoint_last.pt", *FRESH]
    return folder / str(number), flags if number else []


@pytest.mark.parametrize(
    "way, stages",
    [
        (goes_on_in_another_folder, STAGES),
        (goes_on_in_its_folder, (48, 16)),
        (restores_without_the_optimizer, (48, 16)),
    ],
)
def test_a_model_keeps_the_longest_length_of_its_stages(way, stages, corpus, tmp_path):
    for number, length in enumerate(stages):
        folder, flags = way(tmp_path, number)
        log = stage(corpus, folder, length, *flags)
        assert "warm start" not in log and "longer than the" not in log
        kept = read(folder / "checkpoint_last.pt")[1]
        longest = max(stages[: number + 1])
        assert (kept["rotary_original_length"], kept["num_positions"]) == (longest, longest)
    if stages != STAGES:
        return
    said = {}
    for length in (48, 96):
        flags = ["--cpu", "--num-workers", "0", "--batch-size", "2", *TASK]
        flags += ["--path", folder / "checkpoint_last.pt", "--tokens-per-sample", length]
        flags += ["--model-overrides", str({"max_positions": length, "tokens_per_sample": length})]
        finished = succeed("validate", corpus, *USER_DIR, *flags)
        said[length] = finished.out + finished.err
    assert "longer than the" not in said[48] and "longer than the 48 tokens" in said[96]
