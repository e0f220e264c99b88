"""A setting that is declared to have no effect has none on the parameters and logits of a model."""

import dataclasses
from argparse import Namespace

import pytest
import torch
from support.helpers import VOCABULARY, sentences

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.configuration import resolve
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.stock import SIZES
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.models.language_model import LANGUAGE_MODEL

TASK = Namespace(
    cfg=Namespace(_name="language_modeling", tokens_per_sample=32),
    source_dictionary=VOCABULARY,
    target_dictionary=VOCABULARY,
)
SMALL = {
    "_name": LANGUAGE_MODEL.model,
    **{f"decoder_{name}": 16 for name in ("embed_dim", "ffn_embed_dim")},
    **{"decoder_attention_heads": 2, "decoder_layers": 1, "position_encoding": "rotary"},
}
CHOICES = [
    *({"attention": name, "position_encoding": "none"} for name in ATTENTIONS),
    *({"layer": "gated", "gau_normaliser": name} for name in ("softmax_plus", "squared_relu")),
    *({"position_encoding": name} for name in ENCODINGS),
    *({"feed_forward": name} for name in FEED_FORWARDS),
]
CHOICES = [choice for choice in CHOICES if choice.get("attention") != "linformer"]  # not causal
#: what some models refuse instead, and text that has to be in a dictionary
REFUSED = {"attention", "position_ids", "gau_chunk", "position_separators", "position_digits"}
FIELDS = {
    field.name: field
    for field in dataclasses.fields(LANGUAGE_MODEL.dataclass)
    if field.metadata.get("role") == "model" and field.name not in {*SIZES, *REFUSED}
}


def other_value(field):
    """A value that is not the default."""
    default = field.metadata["default"]
    choices = [choice for choice in field.metadata.get("choices") or () if choice != default]
    if choices:
        return choices[0]
    if "str" in str(field.type):
        return "4"
    return not default if "bool" in str(field.type) else (default or 0) + 1


def built(settings):
    """A tiny model with *settings*, in evaluation mode."""
    torch.manual_seed(1)
    return LANGUAGE_MODEL.class_.build_model(Namespace(**settings), TASK).eval()


@torch.no_grad()
@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: "-".join(choice.values()))
def test_what_has_no_effect_has_none(choice, monkeypatch):
    model, tokens = built({**SMALL, **choice}), sentences(2, 9)
    settings = vars(model.completed_settings)
    idle = {
        name: other_value(field)
        for name, field in FIELDS.items()
        if name not in choice and not has_effect(name, settings, LANGUAGE_MODEL.dataclass)
    }
    assert len(idle) > 20
    monkeypatch.setattr(resolve, "unused_settings", lambda *arguments: [])  # nothing is left out
    other = built({**settings, **idle})
    assert {**settings, **idle} == vars(other.completed_settings)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(tokens)[0], model(tokens)[0])
