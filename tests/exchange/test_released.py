"""Imports of RoFormer, RoFormerV2 and GAU-alpha against formulas and stored outputs."""

import json

import pytest
import torch
from conftest import SHARED
from support.conversion import OURS, SYMBOLS, convert, linear, load, save_folder
from support.foreign_models import gau_weights, v2_weights, write_gau, write_v2

from fairseq_posenc.exchange.formats import format_for
from fairseq_posenc.exchange.huggingface.roformer import sine_table

pytestmark = pytest.mark.formulas

TABLE = "roformer.encoder.embed_positions.weight"
DECODER = "cls.predictions.decoder.weight"
#: Changes to config.json for each format; with tie_word_embeddings, the output matrix is added.
CHANGED = {
    "roformer-v2": [
        {},
        {"hidden_act": "gelu", "layer_norm_eps": 0.5},
        {"rotary_value": True, "num_attention_heads": 4},
        {"tie_word_embeddings": False},
    ],
    "gau-alpha": [
        *(
            {"normalization": name, "attention_scale": scale}
            for name in ("softmax_plus", "softmax", "squared_relu")
            for scale in (True, False)
        ),
        {"intermediate_size": 48, "hidden_act": "silu", "embedding_size": 16},
        {"layer_norm_eps": 0.5, "normalization": None, "attention_scale": None},
        {"tie_word_embeddings": False},
    ],
}
#: Words that the import prints.
PRINTED = {
    "roformer-v2": ["left out roformer.pooler.dense.weight", "--norm rms", "--no-bias"],
    "gau-alpha": ["--layer gated --gau-key-size 8", "--pooler-dropout 0.1"],
}


@pytest.mark.parametrize(
    "name, config", [(name, config) for name in CHANGED for config in CHANGED[name]], ids=str
)
def test_matches_the_formulas(tmp_path, out, capsys, name, config):
    if name == "gau-alpha":
        write, state = write_gau, gau_weights(config.get("intermediate_size", 32))
    else:
        write, state = write_v2, v2_weights()
        table = sine_table(40, 16 // config.get("num_attention_heads", 2))
        state[TABLE] = table
        state["roformer.pooler.dense.weight"] = torch.randn(16, 16)
    if "tie_word_embeddings" in config:
        state[DECODER] = torch.randn(len(SYMBOLS), 16)
    convert("import", name, write(tmp_path / "source", state, **config), out, "--verify")
    printed = capsys.readouterr().out
    words = ["computed in float64 (transformers has no such class)", "--lm-head tied"]
    assert all(word in printed for word in (*words, *PRINTED[name]))
    assert ("γ_q was multiplied" in printed) == (config.get("attention_scale") is False)
    model, _ = load(out)
    rates = (0.2 if name == "gau-alpha" else 0.1, 0.1)
    assert (model.args.dropout, model.args.attention_dropout) == rates
    assert not any(parameter.endswith("bias") for parameter, _ in model.named_parameters())
    tied = model.encoder.lm_head.weight is model.encoder.sentence_encoder.embed_tokens.weight
    assert tied == ("tie_word_embeddings" not in config)


@torch.no_grad()
def assert_stored_logits(name, expected, source, out):
    """Compare an imported model, and our formulas for it, with stored logits of other code."""
    convert("import", name, source, out, *["--verify"] * (name != "hf-roformer"))
    read, (model, dictionary) = format_for("import", name).read(str(source), None), load(out)
    symbols = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
    ours = torch.tensor([dictionary.index(OURS.get(symbol, symbol)) for symbol in symbols])
    assert any(inputs["token_type_ids"].any() for inputs in expected["inputs"].values())
    for batch, inputs in expected["inputs"].items():
        tokens, segments = ours[inputs["input_ids"]], inputs["token_type_ids"]
        want, real = expected["outputs"][f"logits_{batch}"], inputs["attention_mask"].bool()
        assert torch.equal(tokens.ne(dictionary.pad()), real)
        if read.head:
            real = torch.ones(len(want), dtype=torch.bool)
        order = slice(None) if read.head else ours
        for labels in (segments, None):  # without labels, the model finds the second text
            have = model(tokens, segment_labels=labels, classification_head_name=read.head)[0]
            torch.testing.assert_close(have[..., order][real], want[real], atol=5e-5, rtol=1e-5)
        if name != "hf-roformer":
            formulas = read.foreign.logits(tokens, segments)[..., ours][real].float()
            torch.testing.assert_close(formulas, want[real], atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    "name, stored, safe",
    [
        ("roformer-v2", "roformerv2_mlm", True),
        ("gau-alpha", "gau_alpha_mlm", False),
        ("gau-alpha", "gau_alpha_mlm_softmax", True),
        ("hf-roformer", "hf_roformer_mlm", False),
        ("hf-roformer", "hf_roformer_cls", True),
    ],
)
def test_stored_outputs(golden, tmp_path, out, name, stored, safe):
    """A *safe* model is saved as model.safetensors, without tied parameters."""
    expected = golden(stored)
    state, computed = expected["state_dict"], expected["outputs"].get("embed_positions")
    if computed is not None:
        torch.testing.assert_close(sine_table(*computed.shape), computed, atol=1e-6, rtol=0)
        state = {**state, TABLE: computed}
    symbols = expected["meta"]["symbols"]
    folder = save_folder(tmp_path / "source", expected["config"], state, symbols)
    roles = {f"{role[1:-1].lower()}_token": role for role in OURS}
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, **roles}))
    if safe:
        reason = "the folder has a model.safetensors"
        safetensors = pytest.importorskip("safetensors.torch", reason=reason)
        (folder / "pytorch_model.bin").unlink()
        kept = {name: value for name, value in state.items() if name not in expected["tied"]}
        safetensors.save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    assert_stored_logits(name, expected, folder, out)


@pytest.mark.parametrize("folder", ["gau_alpha_mlm", "gau_alpha_mlm_bin"])
def test_outputs_of_the_released_code(released, out, folder):
    expected = released("gau_alpha_mlm")
    assert_stored_logits("gau-alpha", expected, SHARED / "golden" / folder, out)


def test_a_classifier_projects_the_first_position(tmp_path, out, capsys):
    state = {**gau_weights(), **linear("classifier", 3, 16)}
    config = {
        "architectures": ["GAUAlphaForSequenceClassification"],
        "summary_type": "first",
        "id2label": {"0": "no", "1": "maybe", "2": "yes"},
    }
    convert("import", "gau-alpha", write_gau(tmp_path / "source", state, **config), out, "--verify")
    printed = capsys.readouterr().out
    assert "classes: 0 no, 1 maybe, 2 yes" in printed and "largest difference" in printed
    model, _ = load(out)
    tokens = torch.randint(4, len(SYMBOLS), (2, 9))
    with torch.no_grad():
        features, _ = model(tokens, features_only=True)
        logits, _ = model(tokens, classification_head_name="sentence_classification_head")
    want = features[:, 0] @ state["classifier.weight"].t() + state["classifier.bias"]
    torch.testing.assert_close(logits, want)
