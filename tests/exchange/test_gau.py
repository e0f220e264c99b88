"""GAU-alpha folders: read, compared with their formulas and their stored outputs."""

import pytest
import torch
from conftest import SHARED
from support.conversion import SYMBOLS, convert, linear, load, read_symbols, reference_folder
from support.foreign_models import assert_stored_logits, gau_weights, write_gau

from fairseq_posenc.exchange.released_formulas import gated_layer

CLASSIFIER = {"architectures": ["GAUAlphaForSequenceClassification"], "summary_type": "first"}
DECODER = "cls.predictions.decoder.weight"
NORMALISERS = ("softmax_plus", "softmax", "squared_relu")


@pytest.mark.parametrize(
    "config",
    [
        *({"normalization": name, "attention_scale": s} for name in NORMALISERS for s in (1, 0)),
        {"intermediate_size": 48, "hidden_act": "silu", "embedding_size": 16},
        {"layer_norm_eps": 0.5, "normalization": None, "attention_scale": None},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_matches_the_formulas(tmp_path, out, capsys, config):
    state = gau_weights(config.get("intermediate_size", 32))
    if "tie_word_embeddings" in config:
        state[DECODER] = torch.randn(len(SYMBOLS), 16)
    source = write_gau(tmp_path / "source", state, **config)
    convert("import", "gau-alpha", source, out, "--verify")
    printed = capsys.readouterr().out
    assert "formulas in float64 (transformers has no such class)" in printed
    assert "--layer gated --gau-key-size 8" in printed
    assert ("γ_q was multiplied" in printed) == (config.get("attention_scale") == 0)
    model, _ = load(out)
    assert (model.args.dropout, model.args.attention_dropout) == (0.2, 0.1)
    tied = model.encoder.lm_head.weight is model.encoder.sentence_encoder.embed_tokens.weight
    assert tied == ("tie_word_embeddings" not in config)


@pytest.mark.parametrize(
    "name, safe",
    [("gau_alpha_mlm", True), ("gau_alpha_mlm", False), ("gau_alpha_mlm_softmax", False)],
)
def test_stored_outputs(golden, tmp_path, out, name, safe):
    """Logits that gau-alpha computed, and that our formulas give, too."""
    expected = golden(name)
    source = reference_folder(tmp_path / "source", expected, safe)
    symbols = expected["meta"]["symbols"]
    assert_stored_logits("gau-alpha", gated_layer, expected, source, symbols, out)


@pytest.mark.parametrize("folder", ["gau_alpha_mlm", "gau_alpha_mlm_bin"])
def test_outputs_of_the_released_code(released, out, folder):
    """The authors' code masks texts of one token otherwise than the package gau-alpha."""
    expected, source = released("gau_alpha_mlm"), SHARED / "golden" / folder
    symbols = read_symbols(source)
    assert_stored_logits("gau-alpha", gated_layer, expected, source, symbols, out)


def test_a_classifier_projects_the_first_position(tmp_path, out, capsys):
    state = {**gau_weights(), **linear("classifier", 3, 16)}
    labels = {"id2label": {"0": "no", "1": "maybe", "2": "yes"}}
    source = write_gau(tmp_path / "source", state, **CLASSIFIER, **labels)
    convert("import", "gau-alpha", source, out, "--verify")
    printed = capsys.readouterr().out
    assert "classes: 0 no, 1 maybe, 2 yes" in printed and "largest difference" in printed
    model, _ = load(out)
    tokens = torch.randint(4, len(SYMBOLS), (2, 9))
    with torch.no_grad():
        features, _ = model(tokens, features_only=True)
        logits, _ = model(tokens, classification_head_name="sentence_classification_head")
    want = features[:, 0] @ state["classifier.weight"].t() + state["classifier.bias"]
    torch.testing.assert_close(logits, want)
