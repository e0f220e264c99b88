"""RoFormer, RoFormerV2 and GAU-alpha as released: their formulas and their stored outputs."""

import pytest
import torch
from conftest import SHARED
from support.conversion import (
    SYMBOLS,
    convert,
    foreign,
    imported_logits,
    linear,
    load,
    read_symbols,
    reference_folder,
    refuses,
    reload,
)
from support.foreign_models import (
    assert_stored_logits,
    gau_weights,
    trained,
    v2_weights,
    write_gau,
    write_v2,
)

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange.huggingface.roformer import ROFORMER, sine_table

pytestmark = pytest.mark.formulas

DECODER = "cls.predictions.decoder.weight"
#: Changes of config.json of each format; one of tie_word_embeddings adds the output.
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
#: Words of the printed flags.
PRINTED = {
    "roformer-v2": ["left out roformer.pooler.dense.weight", "--norm rms", "--no-bias"],
    "gau-alpha": ["--layer gated --gau-key-size 8"],
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
        state["roformer.encoder.embed_positions.weight"] = table
        state["roformer.pooler.dense.weight"] = torch.randn(16, 16)
    if "tie_word_embeddings" in config:
        state[DECODER] = torch.randn(len(SYMBOLS), 16)
    convert("import", name, write(tmp_path / "source", state, **config), out, "--verify")
    printed = capsys.readouterr().out
    words = ["formulas in float64 (transformers has no such class)", "--lm-head tied"]
    assert all(word in printed for word in (*words, *PRINTED[name]))
    assert ("γ_q was multiplied" in printed) == (config.get("attention_scale") is False)
    model, _ = load(out)
    assert (model.args.dropout, model.args.attention_dropout) == (
        0.1 + (name == "gau-alpha") / 10,
        0.1,
    )
    assert not any(parameter.endswith("bias") for parameter, _ in model.named_parameters())
    tied = model.encoder.lm_head.weight is model.encoder.sentence_encoder.embed_tokens.weight
    assert tied == ("tie_word_embeddings" not in config)


@pytest.mark.parametrize(
    "name, stored, safe",
    [
        *(("roformer-v2", "roformerv2_mlm", safe) for safe in (True, False)),
        *(("gau-alpha", "gau_alpha_mlm", safe) for safe in (True, False)),
        ("gau-alpha", "gau_alpha_mlm_softmax", False),
    ],
)
def test_stored_outputs(golden, tmp_path, out, name, stored, safe):
    """Logits that other code computed, and that our formulas give, too."""
    expected = golden(stored)
    source = reference_folder(tmp_path / "source", expected, safe)
    assert_stored_logits(name, expected, source, expected["meta"]["symbols"], out)


@pytest.mark.parametrize("folder", ["gau_alpha_mlm", "gau_alpha_mlm_bin"])
def test_outputs_of_the_released_code(released, out, folder):
    """The authors' code masks texts of one token otherwise than the package gau-alpha."""
    expected, source = released("gau_alpha_mlm"), SHARED / "golden" / folder
    assert_stored_logits("gau-alpha", expected, source, read_symbols(source), out)


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


TABLE = "roformer.encoder.embed_positions.weight"


@pytest.mark.parametrize(
    "name, safe", [("hf_roformer_mlm", True), ("hf_roformer_mlm", False), ("hf_roformer_cls", True)]
)
def test_stored_outputs_of_roformer(golden, tmp_path, name, safe):
    """Logits that transformers computed on another day; needs no transformers."""
    expected, out = golden(name), tmp_path / "out"
    table = {TABLE: expected["outputs"]["embed_positions"]}
    torch.testing.assert_close(sine_table(*table[TABLE].shape), table[TABLE], atol=1e-6, rtol=0)
    source = reference_folder(tmp_path / "source", expected, safe, **table)
    convert("import", "hf-roformer", source, out)
    head = "sentence_classification_head" if "cls" in name else None
    for batch, inputs in expected["inputs"].items():
        want = expected["outputs"][f"logits_{batch}"]
        want = want if head else want[inputs["attention_mask"].bool()]
        assert inputs["token_type_ids"].any()
        for labelled in (True, False):  # the model finds the second text of a pair itself
            have = imported_logits(out, expected["meta"]["symbols"], inputs, head, labelled)
            torch.testing.assert_close(have, want, atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", None])
def test_rounded_and_missing_tables_of_sines(transformers, tmp_path, monkeypatch, capsys, dtype):
    """They are right imports; one with another base is found."""
    source, out = tmp_path / "source", tmp_path / "out"
    model = foreign(transformers, "RoFormerForMaskedLM", source, max_position_embeddings=200)
    if dtype is None:
        safetensors = pytest.importorskip("safetensors.torch")
        weights = safetensors.load_file(source / "model.safetensors")
        del weights[TABLE]
        safetensors.save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    else:
        model.to(getattr(torch, dtype)).save_pretrained(source)
    convert("import", "hf-roformer", source, out, "--verify")
    said = "that the file lacks" if dtype is None else "computed in float32, not read from the file"
    assert said in capsys.readouterr().out
    monkeypatch.setitem(ROFORMER.always, "rotary_base", 1000.0)
    words = ["largest difference", "0.0001", "nothing was written"]
    refuses(words, "import", "hf-roformer", source, tmp_path / "wrong", "--verify")


@pytest.mark.parametrize("kind", ["Sequence", "Token"])
def test_names_of_classes(transformers, tmp_path, kind):
    """They come as label/dict.txt, and go out again; numbers alone and spaces do not."""
    name, names = f"RoFormerFor{kind}Classification", {0: "B-PER", 1: "I-PER", 2: "O"}
    foreign(transformers, name, tmp_path / "source", id2label=names)
    convert("import", "hf-roformer", tmp_path / "source", tmp_path / "ours", "--verify")
    labels = tmp_path / "ours" / "label" / "dict.txt"
    assert labels.read_text() == "B-PER 1\nI-PER 1\nO 1\n"
    convert("export", "hf-roformer", tmp_path / "ours" / "checkpoint.pt", tmp_path / "back")
    assert reload(transformers, name, tmp_path / "back").config.id2label == names
    for number, others in enumerate(({0: "a b", 1: "c"}, {0: "LABEL_0", 1: "LABEL_1"})):
        source, ours = tmp_path / f"source {number}", tmp_path / f"ours {number}"
        foreign(transformers, name, source, id2label=others)
        convert("import", "hf-roformer", source, ours)
        assert not (ours / "label").exists()


def test_one_of_several_heads(transformers, tmp_path):
    checkpoint = trained(tmp_path / "ours", "one", "two", pooler_activation_fn="gelu")
    export = ("export", "hf-roformer", checkpoint, tmp_path / "out", "--verify", "--head")
    convert(*export, "two")
    model = reload(transformers, "RoFormerForSequenceClassification", tmp_path / "out")
    theirs = load_file(checkpoint)["model"]["classification_heads.two.out_proj.weight"]
    assert torch.equal(model.classifier.out_proj.weight, theirs)
    convert(*export, "lm")
    reload(transformers, "RoFormerForMaskedLM", tmp_path / "out")


def test_a_transformers_that_hides_no_later_tokens_is_named(transformers, tmp_path, monkeypatch):
    """Make RoFormer see later tokens, as transformers 5.9 to 5.17 do."""
    module = pytest.importorskip("transformers.models.roformer.modeling_roformer")
    if not hasattr(module, "create_causal_mask"):
        pytest.skip("this transformers makes the mask otherwise")

    def both_ways(*args, past_key_values=None, **kwargs):
        return module.create_bidirectional_mask(*args, **kwargs)

    monkeypatch.setattr(module, "create_causal_mask", both_ways)
    foreign(transformers, "RoFormerForCausalLM", tmp_path / "source", is_decoder=True)
    with pytest.raises(UsageError, match="reads later tokens.*transformers 5.18"):
        convert("import", "hf-roformer", tmp_path / "source", tmp_path / "ours", "--verify")
    assert not (tmp_path / "ours").exists()
