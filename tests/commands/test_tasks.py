"""The translation tasks beside the plain one: what fairseq's own tests ask of a transformer."""

import re

import pytest
from support.commands import NO_DROPOUT, SMALL, generate, train

pytest_plugins = ["support.toy"]

PAIRS = ["--lang-pairs", "src-tgt,tgt-src"]
INTO_TGT = [*PAIRS, "--source-lang", "src", "--target-lang", "tgt"]
LANGUAGE_TOKENS = [
    [],
    ["--encoder-langtok", "tgt", "--decoder-langtok"],
    pytest.param(["--decoder-langtok"], marks=pytest.mark.slow),
    pytest.param(["--encoder-langtok", "src"], marks=pytest.mark.slow),
    pytest.param(["--encoder-langtok", "src", "--decoder-langtok"], marks=pytest.mark.slow),
    pytest.param(["--encoder-langtok", "tgt"], marks=pytest.mark.slow),
]
SHARED = [
    ["--share-encoders", "--share-decoders"],
    ["--share-encoder-embeddings", "--share-decoder-embeddings"],
    ["--share-all-embeddings"],
]


def same_as_stock(stock, ours, data, folder, *flags):
    """Train two architectures with the same flags; check that their losses are the same."""
    flags = (*SMALL, *NO_DROPOUT, *flags)
    expected = train(data, folder / stock, "--arch", stock, *flags)
    found = train(data, folder / ours, "--arch", ours, *flags)
    assert len(found.losses()) > 2
    assert found.losses() == pytest.approx(expected.losses(), abs=2e-3)
    return expected, found


@pytest.mark.parametrize("tokens", LANGUAGE_TOKENS)
def test_multilingual_translation(tokens, toy, tmp_path):
    task = ["--task", "multilingual_translation", *tokens]
    models = "multilingual_transformer", "multilingual_posenc_transformer"
    same_as_stock(*models, toy.separate, tmp_path, *task, *PAIRS)
    train(toy.separate, tmp_path, "--arch", "multilingual_roformer", *SMALL, *task, *PAIRS)
    # this task reads test, test1, test2 … as one set
    flags = [*task, *INTO_TGT, "--gen-subset", "valid"]
    found = generate(toy.separate, tmp_path / "checkpoint_last.pt", *flags)
    assert sorted(found.hypotheses()) == list(range(12))


@pytest.mark.parametrize("shared", SHARED)
def test_multilingual_translation_with_shared_parts(shared, toy, tmp_path):
    task = ["--task", "multilingual_translation", *PAIRS, *shared]
    models = "multilingual_transformer", "multilingual_posenc_transformer"
    same_as_stock(*models, toy.joined, tmp_path, *task)


@pytest.mark.parametrize("tokens", LANGUAGE_TOKENS)
def test_multi_simple_epoch(tokens, toy, tmp_path):
    task = ["--task", "translation_multi_simple_epoch", *tokens]
    sampling = ["--sampling-method", "temperature", "--sampling-temperature", "1.5"]
    flags = [*task, *PAIRS, *sampling, "--virtual-epoch-size", "100"]
    same_as_stock("transformer", "posenc_transformer", toy.joined, tmp_path, *flags)
    train(toy.joined, tmp_path, "--arch", "roformer_tiny", *SMALL, *flags)
    found = generate(toy.joined, tmp_path / "checkpoint_last.pt", *task, *INTO_TGT)
    assert sorted(found.hypotheses()) == list(range(24))


@pytest.mark.parametrize("context", [[], ["--full-context-alignment"]])
def test_training_on_alignments(context, toy, tmp_path):
    criterion = "label_smoothed_cross_entropy_with_alignment"
    alignments = ["--load-alignments", "--criterion", criterion, *context]
    alignments += ["--alignment-layer", "1", "--alignment-heads", "1"]
    models = "transformer_align", "posenc_transformer"
    runs = same_as_stock(*models, toy.joined, tmp_path, *alignments)
    expected, found = (
        [float(entry["alignment_loss"]) for entry in run.entries("train_inner")] for run in runs
    )
    assert min(found) > 0
    assert found == pytest.approx(expected, abs=2e-3)
    train(toy.joined, tmp_path, "--arch", "roformer_align", *SMALL, *alignments)
    found = generate(toy.joined, tmp_path / "checkpoint_last.pt", "--print-alignment")
    assert len(re.findall(r"^A-\d+\t", found.out, re.MULTILINE)) == 24


def test_bleu_while_training(toy, tmp_path):
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 10}']
    bleu += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    roformer = ["--arch", "roformer_tiny", *SMALL, *bleu]
    first = train(toy.separate, tmp_path, *roformer).entries("valid")
    # the checkpoint holds BLEU's counts, which are NumPy arrays
    second = train(toy.separate, tmp_path, *roformer, "--max-epoch", "2").entries("valid")
    assert [entry["epoch"] for entry in first + second] == [1, 2]
    assert all(float(entry["valid_bleu"]) >= 0 for entry in first + second)
    assert len(generate(toy.separate, tmp_path / "checkpoint_best.pt").hypotheses()) == 24
