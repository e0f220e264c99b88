"""--task candidate_ranking: its batches, its margin ranking loss, and the files of its data."""

from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.logging import metrics
from support.helpers import PAD, VOCABULARY
from support.masked_language_models import tiny

from fairseq_posenc.packs.comprehension import candidate_ranking

pytestmark = pytest.mark.formulas
pytest_plugins = ["support.toy", "support.toy_lm"]
BOS, EOS = VOCABULARY.bos(), VOCABULARY.eos()
MASK = VOCABULARY.index("<mask>")


def texts(*lines):
    return [torch.tensor([*line, EOS]) for line in lines]


def dataset():
    places = [texts([10, 11], [12]), texts([13], [14, 15, 16]), texts([17, 18], [])]
    return candidate_ranking.CandidateDataset(
        texts([5, 6], []), texts([7], [8, 9]), places, VOCABULARY, 1, "data: train"
    )


def test_every_candidate_is_masked_in_the_place_of_the_gap():
    data = dataset()
    assert len(data.batch_by_size(np.arange(2), max_tokens=30)) == 2  # 3 and 2 rows of 7 tokens
    batch = data.collater([data[0], data[1]])
    assert batch["counts"].tolist() == [3, 2]
    expected = [
        ([BOS, 5, 6], [10, 11], [7, EOS]),
        ([BOS, 5, 6], [13], [7, EOS]),
        ([BOS, 5, 6], [17, 18], [7, EOS]),
        ([BOS], [12], [8, 9, EOS]),
        ([BOS], [14, 15, 16], [8, 9, EOS]),
    ]
    for source, target, (left, tokens, right) in zip(
        batch["net_input"]["src_tokens"].tolist(), batch["target"].tolist(), expected
    ):
        row = [*left, *[MASK] * len(tokens), *right]
        asked = [PAD] * len(left) + tokens + [PAD] * len(right)
        padding = [PAD] * (len(source) - len(row))
        assert source == row + padding and target == asked + padding


@pytest.mark.parametrize("margin, weight", [(0.4, 5.0), (0.0, 1.0)])
def test_the_loss_and_the_accuracy_are_those_of_the_formula(margin, weight):
    torch.manual_seed(7)
    model, data = tiny("rotary").eval(), dataset()
    cfg = Namespace(margin=margin, margin_weight=weight)
    task = Namespace(target_dictionary=VOCABULARY)
    criterion = CRITERION_REGISTRY["candidate_ranking"](cfg, task)
    expected = right = 0.0
    for example in data.rows:
        scores = []
        for source, target in zip(example["source"], example["target"]):
            logits = model(source[None])[0][0].double().log_softmax(-1)
            asked = target.ne(PAD)
            scores.append(logits[asked, target[asked]].mean().item())
        first, *others = scores
        lead = [max(0.0, other - first + margin) for other in others]
        expected += -first + weight * sum(lead) / len(lead)
        right += first > max(others)
    loss, size, output = criterion(model, data.collater([data[0], data[1]]))
    assert loss.item() == pytest.approx(expected, rel=1e-5) and size == 2
    with metrics.aggregate() as log:
        criterion.reduce_metrics([output])
    assert log.get_smoothed_value("accuracy") == 50 * right
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_an_example_without_a_wrong_candidate_is_refused():
    places = [texts([10]), texts([])]
    with pytest.raises(SystemExit, match="train: example 1 has fewer than two candidates"):
        candidate_ranking.CandidateDataset(texts([5]), texts([7]), places, VOCABULARY, 1, "train")


def test_a_folder_has_both_sides_of_the_gap_and_two_candidates(corpus, tmp_path):
    for number in range(4):
        (tmp_path / f"input{number}").symlink_to(corpus)
    cfg = candidate_ranking.CandidateRankingConfig(data=str(tmp_path), seed=1)
    read = candidate_ranking.CandidateRankingTask.setup_task(cfg).load_dataset
    assert len(read("valid")) == len((corpus / "valid").read_text().splitlines())
    (tmp_path / "input3").unlink()
    with pytest.raises(SystemExit, match="valid needs the folders input0 to input3"):
        read("valid")
