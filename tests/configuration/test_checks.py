"""Checks of a command line have no side effects; settings declared without effect have none."""

import dataclasses
import random
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq import models
from fairseq.quantization_utils import quantize_model_scalar
from omegaconf import OmegaConf
from support.commands import shape
from support.helpers import (
    TINY,
    TranslationTask,
    encoding_of_sides,
    model_settings,
    parse,
    sentences,
    task_of,
)

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration import resolve
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.stock import SIZES
from fairseq_posenc.encodings import ENCODINGS, PositionEncoding
from fairseq_posenc.flags.settings import role_in
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.models import FAMILIES
from fairseq_posenc.models.language_model import LANGUAGE_MODEL

pytestmark = pytest.mark.properties


def states():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_checks_draw_no_numbers_and_a_model_constructs_its_encodings_once(encoding, monkeypatch):
    """Checks must not change the random weights of a seed."""
    built, plain, before = [], PositionEncoding.__init__, states()

    def noting(self, *arguments):
        built.append(self)
        plain(self, *arguments)

    monkeypatch.setattr(PositionEncoding, "__init__", noting)
    settings = model_settings("posenc_transformer", *TINY, *encoding_of_sides(encoding))
    FAMILIES["posenc_transformer"].complete_for_task(settings, TranslationTask())
    assert states() == before and not built
    model = models.build_model(settings, TranslationTask())
    used = [one for stack in (model.encoder, model.decoder) for one in stack.encodings.values()]
    assert built == used  # one composition per stack


def test_what_a_program_changes_after_the_command_line_is_checked():
    cfg, task = parse("roformer_tiny"), TranslationTask()
    task.cfg, cfg.model.encoder_embed_dim = cfg.task, 100
    with pytest.raises(UsageError, match="head size"):
        models.build_model(cfg.model, task)


@pytest.mark.parametrize("encoding", ["rotary", "learned", "sinusoidal", "learned+rotary"])
@pytest.mark.parametrize("family", ["posenc_masked_lm", "posenc_transformer", "posenc_lm"])
def test_a_model_records_the_same_settings_wherever_they_were_completed(family, encoding):
    """Settings are completed on the command line or, as with Hydra, when the model is built."""
    small = {"posenc_masked_lm": "encoder", "posenc_lm": "decoder"}.get(family)
    sides, records = [small] if small else ["encoder", "decoder"], []
    words = [word for side in sides for word in shape(1, 8, 8, 2, side)]
    task = {"encoder": "masked_lm", "decoder": "language_modeling"}.get(small, "translation")
    for completed in (True, False):
        cfg = model_settings(family, "--position-encoding", encoding, *words, task=task)
        if not completed:
            FAMILIES[family].completed = {}
        models.build_model(cfg, task_of(task) if small else TranslationTask())
        records.append(OmegaConf.to_container(cfg))
    assert records[0] == records[1]


# --- effects


TASK = task_of("language_modeling", tokens_per_sample=32)
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
#: flags that some models refuse, and flags whose words must be in the dictionary
REFUSED = {"attention", "position_ids", "gau_chunk", "position_separators", "position_digits"}
FIELDS = {field.name: field for field in dataclasses.fields(LANGUAGE_MODEL.dataclass)}
#: model settings; each gives an effect to some settings of the role "training"
TRAININGS = [
    *({}, {"attention": "reformer"}, {"attention": "bigbird"}, {"position_encoding": "fire"}),
    {"attention": "favor", "favor_redraw": 5},
    {"position_encoding": "learned", "random_positions": 20},
    {"random_positions": 20, "evaluation_positions": "spread"},
]
TRAININGS = [  # without rows that need a missing pack
    settings
    for settings in TRAININGS
    if settings.keys() <= FIELDS.keys() and settings.get("attention", "softmax") in ATTENTIONS
]


def other_value(field):
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
    monkeypatch.setattr(resolve, "unused_settings", lambda *arguments: [])  # keeps all settings
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
