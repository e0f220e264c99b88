"""Pre-training in stages of different lengths, as RoFormer's Table 4, in small numbers."""

import pytest
from support.commands import TRAINING, USER_DIR, read, shape, succeed

from fairseq_posenc.models.masked_lm import MODEL

pytest_plugins = ["support.toy", "support.toy_lm"]
pytestmark = pytest.mark.journeys

TASK = ["--task", "masked_lm", "--sample-break-mode", "none"]
SHAPE = ["--arch", MODEL, "--position-encoding", "rotary", "--criterion", "masked_lm"]
SHAPE += shape(1, 16, 24, 2, "encoder")
FRESH = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]


def test_a_model_keeps_the_longest_length_of_its_stages(corpus, tmp_path):
    """In another folder, in its own, and in a third without the optimizer."""
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    last = "checkpoint_last.pt"
    for folder, length, longest, flags in (
        (one, 16, 16, []),
        (two, 48, 48, ["--finetune-from-model", one / last]),
        (two, 8, 48, ["--max-epoch", 2]),
        (three, 16, 48, ["--restore-file", two / last, *FRESH]),
    ):
        usual = [*TRAINING, *TASK, *SHAPE, "--save-dir", folder, "--tokens-per-sample", length]
        log = succeed("train", corpus, *USER_DIR, *usual, *flags)
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
