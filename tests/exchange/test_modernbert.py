"""ModernBERT of transformers, in and out: windows, bases by layer, biases, heads, and refusals."""

from typing import Any, Dict

import pytest
import torch
from support.conversion import SYMBOLS, convert, load, reload
from support.foreign_models import MODERN, OURS, trained, write_modernbert
from support.vocabularies import carried, write_vocabulary

from fairseq_posenc.exchange import native

TINY = {
    "vocab_size": 16,  # more rows than symbols
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "local_attention": 8,
    "pad_token_id": 0,
    "bos_token_id": 3,
    "cls_token_id": 3,
    "eos_token_id": 4,
    "sep_token_id": 4,
}
BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")
FULL, WINDOW = "full_attention", "sliding_attention"
# what differs from TINY, the settings that the checkpoint must have
VARIANTS: Dict[str, Any] = {
    "usual": ({}, {"local_window": "128,8*2", "rotary_base": "160000.0,10000.0*2"}),
    "biases": (
        {**dict.fromkeys(BIASES, True), "classifier_activation": "relu"},
        {"no_bias": False, "activation_fn": "relu"},
    ),
    "untied": ({"tie_word_embeddings": False, "decoder_bias": False, "local_attention": 5}, {}),
    "other layers": (
        {"layer_types": [WINDOW, FULL, FULL, WINDOW], "hidden_activation": "silu"},
        {"local_window": "8,128*2", "feed_forward": "swiglu"},
    ),
    "no windows": ({"layer_types": [FULL] * 4}, {"attention": "softmax", "rotary_base": 160000.0}),
}


def their_model(transformers, name, folder, **config):
    """A random model of transformers with gains that are not one, saved with a vocabulary."""
    settings = transformers.ModernBertConfig(**{**TINY, **config})
    model = getattr(transformers, name)(settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    write_vocabulary(folder)
    return model


def batch(length):
    """Texts by their numbers in SYMBOLS, of *length* tokens and fewer, padded on either side."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, len(SYMBOLS), (3, length), generator=generator)
    ids[:2, 0] = 3
    ids[1, length // 2 :] = 0
    ids[2, : length // 3] = 0
    ids[2, length // 3] = 3
    return ids


def ours_of(model, dictionary, ids, head=None):
    """The logits of an imported model, in the order of SYMBOLS."""
    order = torch.tensor([dictionary.index(OURS.get(symbol, symbol)) for symbol in SYMBOLS])
    logits, _ = model(order[ids], classification_head_name=head)
    return logits if head else logits[..., order]


def assert_same(have, want, real):
    torch.testing.assert_close(have[real], want[real], atol=1e-5, rtol=1e-5)
    assert torch.equal(have[real].argmax(-1), want[real].argmax(-1))


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_there_and_back(transformers, tmp_path, capsys, name):
    """In texts within a window, and six times as long; the files have the same tensors again."""
    config, settings = VARIANTS[name]
    source, ours, back = (tmp_path / part for part in ("source", "ours", "back"))
    original = their_model(transformers, "ModernBertForMaskedLM", source, **config)
    convert("import", "hf-modernbert", source, ours, "--verify")
    path = ours / "checkpoint.pt"
    convert("export", "hf-modernbert", path, back, "--verify", *carried(source))
    printed = capsys.readouterr().out
    assert printed.count("largest difference from ModernBertForMaskedLM") == 2
    assert "left out 5 rows" in printed
    returned = reload(transformers, "ModernBertForMaskedLM", back)
    model, dictionary = load(ours)
    assert {key: getattr(model.args, key) for key in settings} == settings
    for length in (4, 48):
        ids = batch(length)
        kinds, known = {"attention_mask": ids.ne(0).long()}, slice(len(SYMBOLS))
        want = original(input_ids=ids, **kinds).logits[..., known]
        for have in (ours_of(model, dictionary, ids), returned(input_ids=ids, **kinds).logits):
            assert_same(have, want, ids.ne(0))
    again = returned.state_dict()
    for key, value in original.state_dict().items():
        rows = slice(len(SYMBOLS) if key.startswith(("decoder", "model.embeddings.tok")) else None)
        assert torch.equal(again[key], value[rows]), key
    for key in ("layer_types", "local_attention", "rope_parameters"):
        assert getattr(returned.config, key) == getattr(original.config, key) or name != "usual"


@pytest.mark.parametrize(
    "name, config, head",
    [
        (
            "ModernBertForSequenceClassification",
            {"id2label": {0: "no", 1: "yes", 2: "perhaps"}, "classifier_pooling": "mean"},
            "sentence_classification_head",
        ),
        (
            "ModernBertForSequenceClassification",
            {"num_labels": 4, "classifier_bias": True, "classifier_activation": "relu"},
            "sentence_classification_head",
        ),
        ("ModernBertForTokenClassification", {"num_labels": 5}, "token_classification_head"),
    ],
)
@torch.no_grad()
def test_classifiers_there_and_back(transformers, tmp_path, capsys, name, config, head):
    source, ours, back = (tmp_path / part for part in ("source", "ours", "back"))
    original = their_model(transformers, name, source, **config)
    convert("import", "hf-modernbert", source, ours, "--verify")
    path = ours / "checkpoint.pt"
    convert("export", "hf-modernbert", path, back, "--verify", *carried(source))
    assert capsys.readouterr().out.count(f"largest difference from {name}") == 2
    returned = reload(transformers, name, back)
    assert returned.config.id2label == original.config.id2label
    ids = batch(40)
    kinds, real = {"attention_mask": ids.ne(0).long()}, ids.ne(0)
    want = original(input_ids=ids, **kinds).logits
    if want.dim() == 2:  # [CLS] is the first of a row there
        real = torch.tensor([True, True, config.get("classifier_pooling") == "mean"])
    model, dictionary = load(ours)
    have = ours_of(model, dictionary, ids, head)
    for logits in (have, returned(input_ids=ids, **kinds).logits):
        assert_same(logits, want, real)


@torch.no_grad()
def test_models_of_ours(transformers, tmp_path):
    """Biases, interleaved pairs, and the automatic class with its tokenizer."""
    three = {"encoder_layers": 3, "local_window": "200,4,4", "rotary_base": "500,100*2"}
    path = trained(tmp_path / "ours", **{**MODERN, **three}, no_bias=False)
    convert("export", "hf-modernbert", path, tmp_path / "out", "--verify")
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = tokenizer(["a b <mask> a " * 9, "b"], return_tensors="pt", padding=True)
    ours = native.load(str(path), str(path.parent / "dict.txt"))
    want, _ = ours(texts["input_ids"])
    assert_same(model(**texts).logits, want, texts["attention_mask"].bool())
    assert model.config.layer_types == [FULL, WINDOW, WINDOW]
    assert (model.config.norm_bias, model.config.attention_bias) == (True, True)


def test_older_versions_name_layers_and_bases_otherwise(tmp_path, out):
    changed = {"global_rope_theta": 700.0, "local_rope_theta": None, "local_attention": 6}
    source = write_modernbert(tmp_path / "source", **changed, global_attn_every_n_layers=2)
    convert("import", "hf-modernbert", source, out)
    model, _ = load(out)
    assert (model.args.rotary_base, model.args.local_window) == (700.0, "80,6")
