"""With fairseq's flags and tasks, our models have the losses of stock; presets train and load."""

import re

import pytest
from support.commands import NO_DROPOUT, SMALL, generate, train

pytest_plugins = ["support.toy", "support.toy_lm", "support.masked_lm_runs"]
pytestmark = pytest.mark.journeys

ADAPTIVE = ["--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "8,16"]
ADAPTIVE += ["--ddp-backend", "legacy_ddp"]
#: tests/models/test_stock.py compares other flags
FLAGS = [
    ["--offload-activations", *ADAPTIVE],
    ["--memory-efficient-fp16", "--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5"],
]
PAIRS = ["--lang-pairs", "src-tgt,tgt-src"]
INTO_TGT = [*PAIRS, "--source-lang", "src", "--target-lang", "tgt"]
LANGUAGE_TOKENS = ["--encoder-langtok", "tgt", "--decoder-langtok"]
MULTILINGUAL = ["multilingual_transformer", "multilingual_posenc_transformer"]


def same_as_stock(stock, ours, data, folder, *flags):
    flags = (*SMALL, *NO_DROPOUT, *flags)
    expected = train(data, folder / stock, "--arch", stock, *flags)
    found = train(data, folder / ours, "--arch", ours, *flags)
    assert len(found.losses()) > 2
    assert found.losses() == pytest.approx(expected.losses(), abs=2e-3)
    return expected, found


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_a_flag_does_what_it_does_to_stock(flags, toy, tmp_path):
    same_as_stock("transformer", "posenc_transformer", toy.joined, tmp_path, *flags)


def test_multilingual_translation(toy, tmp_path):
    task = ["--task", "multilingual_translation", *LANGUAGE_TOKENS]
    same_as_stock(*MULTILINGUAL, toy.separate, tmp_path, *task, *PAIRS)
    train(toy.separate, tmp_path, "--arch", "multilingual_roformer", *SMALL, *task, *PAIRS)
    # this task reads test and test1 as one set
    flags = [*task, *INTO_TGT, "--gen-subset", "valid"]
    found = generate(toy.separate, tmp_path / "checkpoint_last.pt", *flags)
    assert sorted(found.hypotheses()) == list(range(12))


@pytest.mark.parametrize("parts", ["encoders", "all-embeddings"])
def test_multilingual_translation_with_shared_parts(parts, toy, tmp_path):
    shared = {f"--share-{parts}", f"--share-{parts.replace('encoder', 'decoder')}"}
    task = ["--task", "multilingual_translation", *PAIRS, *sorted(shared)]
    same_as_stock(*MULTILINGUAL, toy.joined, tmp_path, *task)


def test_multi_simple_epoch(toy, tmp_path):
    task = ["--task", "translation_multi_simple_epoch", *LANGUAGE_TOKENS]
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
