"""What fairseq-generate and fairseq-interactive can be asked for, with a trained RoFormer."""

import re

import pytest
import torch
from support.commands import check_same, generate, interactive

from fairseq_posenc.checkpoints.reading import read_checkpoint

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.journeys


def lines_of(finished, letter):
    """Lines of one kind in the output, by sentence number: S source, T target, A alignment."""
    found = re.findall(rf"^{letter}-(\d+)\t(.*)$", finished.out, re.MULTILINE)
    return {int(number): text for number, text in found}


@pytest.fixture(scope="module")
def checkpoint(trained):
    return trained / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def best(toy, checkpoint):
    """The usual search, for comparison."""
    return generate(toy.separate, checkpoint)


def test_batches_and_padding_change_nothing(toy, checkpoint, best):
    one_by_one = generate(toy.separate, checkpoint, "--batch-size", "1")
    check_same(one_by_one.hypotheses(), best.hypotheses())


def test_interactive_agrees_with_generate(toy, checkpoint, best):
    sources = lines_of(best, "S")
    lines = [sources[number] for number in sorted(sources)]
    found = interactive(toy.separate, checkpoint, lines, "--buffer-size", "9")
    check_same(found.hypotheses(), best.hypotheses())


def test_the_longest_text_is_that_of_the_training(toy, checkpoint, tmp_path):
    """The task of fairseq-interactive takes 1,024 tokens by default."""
    state, limits = read_checkpoint(checkpoint), {"max_source_positions": 1100}
    for section in ("task", "model"):
        settings = state["cfg"][section]
        (settings if isinstance(settings, dict) else vars(settings)).update(limits)
    torch.save(state, tmp_path / "longer.pt")
    line, few = " ".join(["a1"] * 1050), ["--max-len-b", "1"]
    for path, flags in ((tmp_path / "longer.pt", []), (checkpoint, ["--model-overrides", limits])):
        assert interactive(toy.separate, path, [line], *few, *flags).hypotheses()


def test_the_score_of_a_given_translation_is_that_of_the_search(toy, checkpoint):
    """Scoring sees the whole target at once, searching sees it word by word."""
    whole = ["--prefix-size", "20", "--beam", "1", "--max-len-b", "20"]  # nothing left to search
    searched = generate(toy.separate, checkpoint, *whole).hypotheses()
    scored = generate(toy.separate, checkpoint, "--score-reference").hypotheses()
    for number, [(score, text)] in scored.items():
        [(other, forced)] = searched[number]
        assert forced.startswith(text)
        if forced == text:
            assert score == pytest.approx(other, abs=1e-4)
    assert sum(searched[n][0][1] == text for n, [(_, text)] in scored.items()) >= 5


def test_hard_alignments_name_a_source_word_for_every_target_word(toy, checkpoint, best):
    found = generate(toy.separate, checkpoint, "--print-alignment")
    check_same(found.hypotheses(), best.hypotheses())
    sources, alignments = lines_of(found, "S"), lines_of(found, "A")
    for number, [(_, text)] in found.hypotheses().items():
        links = [tuple(map(int, link.split("-"))) for link in alignments[number].split()]
        assert [target for _, target in links] == list(range(len(text.split())))
        assert all(0 <= source < len(sources[number].split()) for source, _ in links)


def test_half_precision_stays_close(toy, checkpoint, best):
    found = generate(toy.separate, checkpoint, "--fp16").hypotheses()
    pairs = [(found[n][0], best.hypotheses()[n][0]) for n in found]
    assert sum(text == other for (_, text), (_, other) in pairs) >= 20
    for (score, text), (other, expected) in pairs:
        if text == expected:
            assert score == pytest.approx(other, abs=0.02)
