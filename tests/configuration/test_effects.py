"""What is declared to have no effect, or one in training alone, changes no parameters or logits."""

import dataclasses
from argparse import Namespace

import pytest
import torch
from fairseq.quantization_utils import quantize_model_scalar
from support.helpers import VOCABULARY, sentences

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.configuration import resolve
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.stock import SIZES
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.flags.settings import role_in
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.models.language_model import LANGUAGE_MODEL

pytestmark = pytest.mark.properties

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
FIELDS = {field.name: field for field in dataclasses.fields(LANGUAGE_MODEL.dataclass)}
#: where settings of a training have an effect
TRAININGS = [
    *({}, {"attention": "reformer"}, {"attention": "bigbird"}, {"position_encoding": "fire"}),
    {"attention": "favor", "favor_redraw": 5},
    {"position_encoding": "learned", "random_positions": 20},
    {"random_positions": 20, "evaluation_positions": "spread"},
]
TRAININGS = [  # without those of packs that were deleted
    settings
    for settings in TRAININGS
    if settings.keys() <= FIELDS.keys() and settings.get("attention", "softmax") in ATTENTIONS
]


def other_value(field):
    """A value that is not the default."""
    default = field.metadata["default"]
    choices = [choice for choice in field.metadata.get("choices") or () if choice != default]
    if choices:
        return choices[0]
    if "str" in str(field.type):
        return "4"
    if "bool" in str(field.type):
        return not default
    return (default or 0) + (0.5 if "float" in str(field.type) else 9)


def built(settings):
    """A tiny model with *settings*, in evaluation mode."""
    torch.manual_seed(1)
    model = LANGUAGE_MODEL.class_.build_model(Namespace(**settings), TASK)
    return quantize_model_scalar(model, Namespace(**settings)).eval()  # as fairseq's tasks do


@torch.no_grad()
@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: "-".join(choice.values()))
def test_what_has_no_effect_has_none(choice, monkeypatch):
    model, tokens = built({**SMALL, **choice}), sentences(2, 9)
    settings = vars(model.completed_settings)
    idle = {
        name: other_value(field)
        for name, field in FIELDS.items()
        if field.metadata.get("role") == "model"
        and name not in {*choice, *SIZES, *REFUSED}
        and not has_effect(name, settings, LANGUAGE_MODEL.dataclass)
    }
    assert len(idle) > 20
    monkeypatch.setattr(resolve, "unused_settings", lambda *arguments: [])  # nothing is left out
    other = built({**settings, **idle})
    assert {**settings, **idle} == vars(other.completed_settings)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(tokens)[0], model(tokens)[0])


@torch.no_grad()
@pytest.mark.parametrize("choice", TRAININGS, ids=str)
def test_what_belongs_to_a_training_changes_no_trained_model(choice):
    model, tokens = built({**SMALL, **choice}), sentences(2, 9)
    settings = model.completed_settings
    for name, field in FIELDS.items():
        used = has_effect(name, vars(settings), LANGUAGE_MODEL.dataclass)
        path = "str" in str(field.type) and not field.metadata.get("choices")
        if role_in(settings, field.metadata) != "training" or not used or path:
            continue
        other = built({**SMALL, **choice, name: other_value(field)})
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(tokens)[0], model(tokens)[0]), name
