"""The answer criterion with all families of models: its loss, and which answers are correct."""

import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from support.commands import shape, succeed
from support.made_up_tasks import TASKS_DIR, answers, writing

from fairseq_posenc.basics.errors import UsageError

pytestmark = pytest.mark.journeys

AnswerCrossEntropyCriterion = answers.AnswerCrossEntropyCriterion
DICTIONARY = Dictionary()
A, B, BEGIN, MASK = map(DICTIONARY.add_symbol, ("a", "b", answers.ANSWER, "<mask>"))
END, PAD = DICTIONARY.eos(), DICTIONARY.pad()


def criterion(mode="eos", dictionary=DICTIONARY, **more):
    of_task = {"sample_break_mode": mode} if mode else {"source_lang": "input"}
    cfg = SimpleNamespace(data="folder", **of_task)
    task = SimpleNamespace(target_dictionary=dictionary, cfg=cfg, **more)
    return AnswerCrossEntropyCriterion(None, task)


class Said:
    """A model that returns given logits."""

    training = False

    def __init__(self, logits):
        self.logits, self.seen = logits, {}

    def __call__(self, **inputs):
        self.seen = inputs
        masked = inputs.get("masked_tokens")
        return (self.logits if masked is None else self.logits[masked]), None

    @staticmethod
    def get_normalized_probs(output, log_probs):
        return F.log_softmax(output[0], dim=-1)


def logits_of(said):
    """Noisy logits (B, T, V) with which the symbols *said* (B, T) are the most probable."""
    torch.manual_seed(1)
    noise = torch.rand(*said.shape, len(DICTIONARY), dtype=torch.float64)
    return noise + 3 * F.one_hot(said, len(DICTIONARY))


def sample(targets, **inputs):
    return {"target": targets, "ntokens": targets.numel(), "net_input": inputs}


def check(found, logits, asked, right, exact):
    loss, size, output = found
    expected = sum(-F.log_softmax(logits[row, place], -1)[symbol] for row, place, symbol in asked)
    assert size == len(asked) and float(loss) == pytest.approx(float(expected), rel=1e-6)
    assert (int(output["ncorrect"]), int(output["nexact"])) == (right, exact)


TEXTS = torch.tensor([[A, B, BEGIN, B, A, END], [A, BEGIN, A, END, PAD, PAD]])


def test_a_language_model_answers_after_the_symbol():
    said = TEXTS.clone()
    said[0, 4] = B  # one token of the first answer is wrong
    said[:, 0] = B  # the question does not count
    logits = logits_of(said)
    found = criterion()(Said(logits), sample(TEXTS, src_tokens=TEXTS))
    asked = [(0, 3, B), (0, 4, A), (0, 5, END), (1, 2, A), (1, 3, END)]
    check(found, logits, asked, right=4, exact=1)


def test_a_translation_is_all_answer():
    targets = torch.tensor([[B, A, END], [A, END, PAD]])
    said = targets.clone()
    said[1, 1] = B  # B in place of </s>
    logits = logits_of(said)
    given = sample(targets, src_tokens=TEXTS, prev_output_tokens=targets)
    found = criterion(mode=None)(Said(logits), given)
    asked = [(0, 0, B), (0, 1, A), (0, 2, END), (1, 0, A), (1, 1, END)]
    check(found, logits, asked, right=4, exact=1)


def test_a_masked_language_model_sees_nothing_of_the_answer():
    hidden = torch.full_like(TEXTS, PAD)
    hidden[0, 0], hidden[0, 3] = A, B  # selected by fairseq, which replaces them by <mask> or B
    given = TEXTS.clone()
    given[0, 0], given[0, 3] = MASK, B
    logits = logits_of(TEXTS)
    model = Said(logits)
    found = criterion(mask_idx=MASK)(model, sample(hidden, src_tokens=given))
    check(found, logits, [(0, 3, B), (0, 4, A), (1, 2, A)], right=3, exact=2)
    expected = [[A, B, BEGIN, MASK, MASK, END], [A, BEGIN, MASK, END, PAD, PAD]]
    assert model.seen["src_tokens"].tolist() == expected


def test_other_data_and_several_samples_in_a_text_are_refused():
    with pytest.raises(UsageError, match="masked_lm with --sample-break-mode eos"):
        criterion(mode="none")
    with pytest.raises(UsageError, match="folder: its dictionary has no symbol <answer>"):
        criterion(dictionary=Dictionary())
    criterion(mode=None, dictionary=Dictionary())  # translation does not need the symbol


# --- in fairseq's commands

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
    """fairseq-validate, in another process, gives the same scores as the last validation."""
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
        assert subset != "valid" or float(value) == float(last["valid_exact_match"])
