"""RoBERTa and ModernBERT of transformers, in and out: logits, settings, heads and tensors."""

from typing import Any, Dict, Tuple

import pytest
import torch
from support.conversion import SYMBOLS, convert, load, reload
from support.foreign_models import OURS
from support.vocabularies import carried, write_vocabulary

SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "pad_token_id": 0}
TINY: Dict[str, Any] = {
    "Roberta": {
        **SIZES,
        **{"vocab_size": len(SYMBOLS), "num_hidden_layers": 2, "max_position_embeddings": 61},
    },
    "ModernBert": {
        **SIZES,
        **{"vocab_size": 16, "num_hidden_layers": 4, "max_position_embeddings": 64},
        **{"local_attention": 8, "bos_token_id": 3, "cls_token_id": 3},
        **{"eos_token_id": 4, "sep_token_id": 4},
    },
}
BIASES = dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True)
FULL, WINDOW = "full_attention", "sliding_attention"
LABELS = {"id2label": {0: "no", 1: "yes", 2: "perhaps"}}
RELU = {"classifier_bias": True, "classifier_activation": "relu"}
MIXED = {"layer_types": [WINDOW, FULL, FULL, WINDOW], "hidden_activation": "silu"}
UNTIED = {"tie_word_embeddings": False}
ODD = {**UNTIED, "decoder_bias": False, "local_attention": 5}
#: A class, what differs from TINY, and the settings that the checkpoint must have.
VARIANTS: Dict[str, Tuple[str, Dict[str, Any], Dict[str, Any]]] = {
    "roberta": ("RobertaForMaskedLM", {}, {"position_encoding": "learned"}),
    "one segment": ("RobertaForMaskedLM", {**UNTIED, "type_vocab_size": 1}, {}),
    "sentences": ("RobertaForSequenceClassification", {**LABELS, "hidden_act": "relu"}, {}),
    "tokens": ("RobertaForTokenClassification", {"num_labels": 5}, {}),
    "usual": (
        "ModernBertForMaskedLM",
        {},
        {"local_window": "128,8*2", "rotary_base": "160000.0,10000.0*2"},
    ),
    "biases": (
        "ModernBertForMaskedLM",
        {**BIASES, "classifier_activation": "relu"},
        {"no_bias": False, "activation_fn": "relu"},
    ),
    "untied": ("ModernBertForMaskedLM", ODD, {}),
    "other layers": (
        "ModernBertForMaskedLM",
        MIXED,
        {"local_window": "8,128*2", "feed_forward": "swiglu"},
    ),
    "no windows": (
        "ModernBertForMaskedLM",
        {"layer_types": [FULL] * 4},
        {"attention": "softmax", "rotary_base": 160000.0},
    ),
    "mean": ("ModernBertForSequenceClassification", {**LABELS, "classifier_pooling": "mean"}, {}),
    "first": ("ModernBertForSequenceClassification", {"num_labels": 4, **RELU}, {}),
    "modern tokens": ("ModernBertForTokenClassification", {"num_labels": 5}, {}),
}


@torch.no_grad()
def their_model(transformers, family, name, folder, **config):
    """A random model of transformers with gains that are not one, saved with a vocabulary."""
    settings = getattr(transformers, f"{family}Config")(**{**TINY[family], **config})
    model = getattr(transformers, name)(settings).eval()
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


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_there_and_back(transformers, tmp_path, capsys, variant):
    """In texts within a window, and six times as long; the files have the same tensors again."""
    name, config, settings = VARIANTS[variant]
    family = name[: name.index("For")]
    source, ours, back = (tmp_path / part for part in ("source", "ours", "back"))
    original = their_model(transformers, family, name, source, **config)
    convert("import", f"hf-{family.lower()}", source, ours, "--verify")
    path = ours / "checkpoint.pt"
    convert("export", f"hf-{family.lower()}", path, back, "--verify", *carried(source))
    printed = capsys.readouterr().out
    assert printed.count(f"largest difference from {name}") == 2
    assert ("left out 5 rows" in printed) == (family == "ModernBert")
    returned = reload(transformers, name, back)
    model, dictionary = load(ours)
    assert {key: getattr(model.args, key) for key in settings} == settings
    order = torch.tensor([dictionary.index(OURS.get(symbol, symbol)) for symbol in SYMBOLS])
    kind = {"Se": "sentence_classification_head", "To": "token_classification_head"}
    head, known = kind.get(name.split("For")[1][:2]), slice(len(SYMBOLS))
    for length in (4, 48):
        ids = batch(length)
        given = {"attention_mask": ids.ne(0).long()}
        labels = None
        if family == "Roberta" and config.get("type_vocab_size") != 1:
            given["token_type_ids"] = labels = ids.gt(6).long()
        want, again = (each(input_ids=ids, **given).logits for each in (original, returned))
        have, _ = model(order[ids], segment_labels=labels, classification_head_name=head)
        have = have if head else have[..., order]
        real = ids.ne(0)
        if want.dim() == 2:  # [CLS] is the first of a row here
            real = torch.tensor([True, True, config.get("classifier_pooling") == "mean"])
        want = (want if head else want[..., known])[real]
        for logits in (have, again):
            torch.testing.assert_close(logits[real], want, atol=1e-5, rtol=1e-5)
            assert torch.equal(logits[real].argmax(-1), want.argmax(-1))
    assert returned.config.id2label == original.config.id2label
    for key in ("layer_types", "local_attention", "rope_parameters") if variant == "usual" else ():
        assert getattr(returned.config, key) == getattr(original.config, key)
    for key, value in original.state_dict().items():  # rows are those of the tokenizer again
        first = 1 if "position_embeddings" in key else 0  # the padding's position does not matter
        last = len(SYMBOLS) if key.startswith(("decoder", "model.embeddings.tok")) else None
        same = torch.equal(returned.state_dict()[key][first:], value[first:last])
        # one segment becomes part of the positions, and a bias of its own that of the output
        folded = "_embeddings" in key or key == "lm_head.bias"
        assert same or (folded and "type_vocab_size" in config), key
