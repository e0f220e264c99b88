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


def test_beam_search_gives_the_n_best_in_order(toy, checkpoint):
    alone = generate(toy.separate, checkpoint, "--beam", "5").hypotheses()
    found = generate(toy.separate, checkpoint, "--beam", "5", "--nbest", "5").hypotheses()
    for number, hypotheses in found.items():
        scores = [score for score, _ in hypotheses]
        assert len(scores) == 5
        assert scores == sorted(scores, reverse=True)
        assert hypotheses[0] == alone[number][0]


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


def test_an_ensemble_of_one_model_twice_is_that_model(toy, checkpoint, best):
    found = generate(toy.separate, f"{checkpoint}:{checkpoint}")
    check_same(found.hypotheses(), best.hypotheses())


def test_prefixes_are_kept(toy, checkpoint):
    found = generate(toy.separate, checkpoint, "--prefix-size", "2", "--beam", "3")
    targets = lines_of(found, "T")
    for number, [(_, text)] in found.hypotheses().items():
        assert text.split()[:2] == targets[number].split()[:2]


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


def test_sampling_gives_every_sample_asked_for(toy, checkpoint):
    flags = ["--sampling", "--sampling-topk", "5", "--beam", "3", "--nbest", "3", "--seed", "2"]
    found = generate(toy.separate, checkpoint, *flags).hypotheses()
    assert all(len(samples) == 3 for samples in found.values())
    assert any(len({text for _, text in samples}) > 1 for samples in found.values())
    assert found == generate(toy.separate, checkpoint, *flags).hypotheses()


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


@pytest.mark.parametrize(
    "flags",
    [
        ["--lenpen", "0.6", "--unkpen", "0.5", "--no-repeat-ngram-size", "2", "--min-len", "3"],
        ["--diverse-beam-groups", "2", "--beam", "4", "--diverse-beam-strength", "0.5"],
        ["--diversity-rate", "0.5"],
        ["--match-source-len", "--beam", "3"],
        ["--sampling", "--beam", "3", "--nbest", "3", "--sampling-topp", "0.8"],
        ["--retain-dropout", "--unnormalized"],
        ["--max-tokens", "40", "--num-workers", "1"],
        ["--scoring", "sacrebleu", "--quiet"],
    ],
)
def test_other_searches_translate_every_sentence(flags, toy, checkpoint):
    found = generate(toy.separate, checkpoint, *flags)
    assert "Translated 24 sentences" in found.out + found.err
