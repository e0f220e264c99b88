"""Flags and tasks of fairseq's transformer give the losses of stock; presets train and load."""

import re

import pytest
from support.commands import NO_DROPOUT, SMALL, generate, read, train, validate
from support.helpers import kinds
from support.masked_lm_runs import pretrain
from support.toy_lm import TASK, train_lm

from fairseq_posenc.models.presets import LANGUAGE_MODEL, MASKED_LM, TRANSLATION

pytest_plugins = ["support.toy", "support.toy_lm", "support.masked_lm_runs"]
pytestmark = pytest.mark.journeys

SIZES = ["--decoder-embed-dim", "24", "--decoder-ffn-embed-dim", "40", "--decoder-layers", "1"]
FLAGS = {
    "none": [],
    "activation": ["--activation-fn", "gelu_accurate"],
    "pre-norm": ["--encoder-normalize-before", "--decoder-normalize-before"],
    "pre-norm without the last norm": ["--decoder-normalize-before", "--no-decoder-final-norm"],
    "tied output": ["--share-decoder-input-output-embed"],
    "tied embeddings": ["--share-all-embeddings"],
    "embedding norm": ["--layernorm-embedding", "--no-scale-embedding"],
    "decoder sizes": [*SIZES, "--decoder-attention-heads", "4", "--decoder-output-dim", "12"],
    "no cross-attention": ["--no-cross-attention"],
    "LayerDrop": ["--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5"],
    "adaptive softmax": [
        *("--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "8,16"),
        *("--adaptive-softmax-dropout", "0.1", "--ddp-backend", "legacy_ddp"),
    ],
    "lengths": ["--max-source-positions", "12", "--max-target-positions", "13"],
    "checkpointed activations": ["--checkpoint-activations"],
    "offloaded activations": ["--offload-activations"],
    "half precision": ["--memory-efficient-fp16"],
}
PAIRS = ["--lang-pairs", "src-tgt,tgt-src"]
INTO_TGT = [*PAIRS, "--source-lang", "src", "--target-lang", "tgt"]
LANGUAGE_TOKENS = [[], ["--encoder-langtok", "tgt", "--decoder-langtok"]]
MULTILINGUAL = ["multilingual_transformer", "multilingual_posenc_transformer"]


def same_as_stock(stock, ours, data, folder, *flags):
    """Train two architectures with the same flags; check that their losses are the same."""
    flags = (*SMALL, *NO_DROPOUT, *flags)
    expected = train(data, folder / stock, "--arch", stock, *flags)
    found = train(data, folder / ours, "--arch", ours, *flags)
    assert len(found.losses()) > 2
    assert found.losses() == pytest.approx(expected.losses(), abs=2e-3)
    return expected, found


@pytest.mark.parametrize("flags", FLAGS.values(), ids=" ".join)
def test_a_flag_does_what_it_does_to_stock(flags, toy, tmp_path):
    same_as_stock("transformer", "posenc_transformer", toy.joined, tmp_path, *flags)


@pytest.mark.parametrize("tokens", LANGUAGE_TOKENS)
def test_multilingual_translation(tokens, toy, tmp_path):
    task = ["--task", "multilingual_translation", *tokens]
    same_as_stock(*MULTILINGUAL, toy.separate, tmp_path, *task, *PAIRS)
    train(toy.separate, tmp_path, "--arch", "multilingual_roformer", *SMALL, *task, *PAIRS)
    # this task reads test, test1, test2 … as one set
    flags = [*task, *INTO_TGT, "--gen-subset", "valid"]
    found = generate(toy.separate, tmp_path / "checkpoint_last.pt", *flags)
    assert sorted(found.hypotheses()) == list(range(12))


@pytest.mark.parametrize("parts", ["encoders", "encoder-embeddings", "all-embeddings"])
def test_multilingual_translation_with_shared_parts(parts, toy, tmp_path):
    shared = {f"--share-{parts}", f"--share-{parts.replace('encoder', 'decoder')}"}
    task = ["--task", "multilingual_translation", *PAIRS, *sorted(shared)]
    same_as_stock(*MULTILINGUAL, toy.joined, tmp_path, *task)


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


# --- every kind of preset: trained for an update, saved, loaded and validated


#: What presets need at the sizes of these tests: layers for their patterns, fewer heads.
OWN_FLAGS = {
    "roformer_align": ["--alignment-layer", "1"],
    "modernbert_masked_lm_tiny": ["--encoder-layers", "3"],
    "modernbert_masked_lm_base": ["--encoder-layers", "3"],
    "rnope_swa_lm": ["--decoder-layers", "4"],
    "llama_lm_small": ["--kv-heads", "1"],
}
ONE_UPDATE = ["--max-update", "1"]


def check_loaded(data, folder, logged, *task):
    """Validating the saved model gives the loss that training logged."""
    found = validate(data, folder / "checkpoint_last.pt", "--max-tokens", "160", *task)
    (entry,) = found.entries("valid")
    assert float(entry["valid_loss"]) == pytest.approx(logged.losses()["valid 1"], abs=2e-3)


@pytest.mark.parametrize("arch", kinds(TRANSLATION))
def test_a_translation_model(arch, toy, tmp_path):
    flags = ["--arch", arch, *SMALL, *OWN_FLAGS.get(arch, []), *ONE_UPDATE]
    check_loaded(toy.separate, tmp_path, train(toy.separate, tmp_path, *flags))


@pytest.mark.parametrize("arch", kinds(MASKED_LM))
def test_a_masked_language_model(arch, corpora, tmp_path):
    logged = pretrain(corpora.text, tmp_path, arch, *OWN_FLAGS.get(arch, []), *ONE_UPDATE)
    check_loaded(corpora.text, tmp_path, logged, "--task", "masked_lm")
    _, settings = read(tmp_path / "checkpoint_last.pt")
    preset = MASKED_LM[arch]
    assert settings["position_encoding"] == preset["position_encoding"]
    assert settings["untie_cls"] == preset.get("untie_cls", False)


@pytest.mark.parametrize("arch", kinds(LANGUAGE_MODEL))
def test_a_language_model(arch, corpus, tmp_path):
    logged = train_lm(corpus, tmp_path, arch, *OWN_FLAGS.get(arch, []), *ONE_UPDATE)
    check_loaded(corpus, tmp_path, logged, *TASK, "--tokens-per-sample", "16")
