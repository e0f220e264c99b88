"""GAU-alpha folders: read, compared with their formulas and their stored outputs."""

import pytest
import torch
from conftest import SHARED
from support.conversion import (
    SYMBOLS,
    convert,
    imported_logits,
    linear,
    load,
    read_symbols,
    reference_folder,
    refuses,
)
from support.foreign_models import GAU_CONFIG, assert_stored_logits, gau_weights, write_gau

from fairseq_posenc.exchange.released_formulas import gated_layer, released_logits, tied_head

CLASSIFIER = {"architectures": ["GAUAlphaForSequenceClassification"], "summary_type": "first"}
WORDS = "gau_alpha.embeddings.word_embeddings.weight"
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
    "wrong",
    [{"normalization": "softmax"}, {"attention_scale": False}, {"layer_norm_eps": 0.5}],
    ids=str,
)
def test_the_formulas_can_tell(tmp_path, out, wrong):
    """A model that is read under other settings is found out, and not kept."""
    state = gau_weights()
    convert("import", "gau-alpha", write_gau(tmp_path / "source", state), out)
    inputs = {
        "input_ids": torch.tensor([[3, 6, 7, 8, 9, 10, 4]]),
        "attention_mask": torch.ones(1, 7, dtype=torch.long),
        "token_type_ids": torch.tensor([[0, 0, 0, 1, 1, 1, 1]]),
    }
    other = released_logits(
        gated_layer, "gau_alpha.", state, {**GAU_CONFIG, **wrong}, tied_head(state[WORDS])
    )
    right = released_logits(gated_layer, "gau_alpha.", state, GAU_CONFIG, tied_head(state[WORDS]))
    have = imported_logits(out, SYMBOLS, inputs)
    arguments = (inputs["input_ids"], inputs["token_type_ids"], inputs["attention_mask"].bool())
    assert (have - right(*arguments)[0]).abs().max() < 1e-4
    assert (have - other(*arguments)[0]).abs().max() > 1e-2


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


class TestRefused:
    @pytest.mark.parametrize(
        "config, words",
        [
            ({"model_type": "roformer"}, ["model_type is 'roformer'", "'gau_alpha'"]),
            ({"architectures": ["GAUAlphaForMultipleChoice"]}, ["GAUAlphaForMultipleChoice"]),
            ({"normalization": "relu"}, ["normalization relu", "softmax_plus, softmax, squared"]),
            ({"attention_scale": "yes"}, ["attention_scale yes", "True, False"]),
            ({"use_bias": True}, ["use_bias True", "False"]),
            ({"hidden_act": "gelu"}, ["hidden_act gelu", "swish, silu"]),
            ({"embedding_size": 8}, ["embedding_size 8", "16"]),
            ({"attention_key_size": None}, ["attention_key_size is None"]),
            ({"intermediate_size": 40}, ["intermediate_size 40", "hidden_size 16"]),
            ({"intermediate_size": 48}, ["i_dense.weight", "72 x 16", "104 x 16"]),
            ({"attention_key_size": 7}, ["--gau-key-size"]),
            ({"pad_token_id": 3}, ["pad_token_id is 3", "number 0"]),
            ({"num_hidden_layers": 3}, ["no tensor gau_alpha.encoder.layer.2."]),
            ({"num_hidden_layers": 1}, ["unexpected tensor gau_alpha.encoder.layer.1.", "3 more"]),
            ({"type_vocab_size": 3}, ["token_type_embeddings.weight", "2 x 16", "3 x 16"]),
            ({"hidden_size": 0}, ["hidden_size is 0"]),
            ({"attention_key_size": -8}, ["attention_key_size is -8"]),
            ({"hidden_dropout_prob": "x"}, ["hidden_dropout_prob is 'x'"]),
            ({"max_position_embeddings": 0}, ["max_position_embeddings is 0"]),
            (CLASSIFIER, ["no tensor classifier.weight"]),
            ({**CLASSIFIER, "summary_type": None}, ["summary_type last", "first"]),
            ({**CLASSIFIER, "summary_type": "mean"}, ["summary_type mean"]),
            ({**CLASSIFIER, "summary_use_proj": True}, ["summary_use_proj True"]),
            ({**CLASSIFIER, "summary_activation": "tanh"}, ["summary_activation tanh"]),
        ],
        ids=str,
    )
    def test_config(self, tmp_path, out, config, words):
        source = write_gau(tmp_path / "source", **config)
        refuses(words, "import", "gau-alpha", source, out)
        assert not out.exists()

    def test_tensors(self, tmp_path, out):
        bias = {"gau_alpha.encoder.layer.0.gau.q_scaleoffset.bias": torch.zeros(8)}
        source = write_gau(tmp_path / "biased", {**gau_weights(), **bias})
        refuses(["unexpected tensor", "q_scaleoffset.bias"], "import", "gau-alpha", source, out)
        own = {DECODER: torch.randn(len(SYMBOLS), 16)}
        source = write_gau(tmp_path / "untied", {**gau_weights(), **own})
        words = ["decoder.weight", "word_embeddings.weight", "tie_word_embeddings"]
        refuses(words, "import", "gau-alpha", source, out)
