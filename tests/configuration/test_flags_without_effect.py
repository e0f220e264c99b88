"""Flags without effect, except for the refusals that tests/models/refusals.txt lists."""

import dataclasses
from argparse import Namespace

import pytest
from fairseq import models, options
from fairseq.models import ARCH_CONFIG_REGISTRY
from omegaconf import OmegaConf
from support.helpers import TINY, TranslationTask, kinds, model_settings, parse, sentences, task_of
from support.lists import rows_of

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.stock import SIZES
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.layers import LAYERS
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.models import FAMILIES
from fairseq_posenc.models.translation import MODEL, TRANSLATION

pytestmark = pytest.mark.properties

ALIBI = ["--position-encoding", "alibi"]
GATED = ["--layer", "gated", "--position-encoding", "rotary"]
#: command lines in which every flag has an effect or is given its default value
USEFUL = [
    [*ALIBI, "--rotary-base", "10000", "--gau-key-size", "128"],
    [*ALIBI, "--decoder-position-encoding", "rotary*3,none", "--rotary-base", "500"],
    ["--position-encoding", "learned+shaw", "--shaw-values"],
    ["--attention", "favor", "--position-encoding", "rotary", "--linear-rotary", "inputs"],
    ["--attention", "favor", "--position-encoding", "none", "--linear-epsilon", "1e-6"],
    [*GATED, "--gau-normaliser", "squared_relu", "--gau-length", "reference"]
    + ["--gau-reference-length", "9"],
    [*GATED, "--gau-reference-length", "9", "--gau-key-size", "8"],
    ["--attention", "local", "--position-encoding", "rotary", "--kv-heads", "1"],
    *(flags.split() for (flags,) in rows_of("useful.txt")),  # from the packs
]
#: settings and values, each given in place of the architecture's own value
CHOICES = [
    *(("attention", name) for name in ATTENTIONS),
    *(("layer", name) for name in LAYERS),
    *(("position_encoding", name) for name in ENCODINGS),
    *(("feed_forward", name) for name in FEED_FORWARDS),
]


@pytest.mark.parametrize("flags", USEFUL, ids=" ".join)
def test_other_flags_and_defaults_are_accepted(flags):
    model_settings(MODEL, *flags)


def completed(family, arch, **given):
    """The settings of an architecture as fairseq-train completes them, or None if refused."""
    required = {"task": family.tasks[0], "criterion": family.criterion, "langs": "de,en"}
    args = Namespace(**required, **given)
    try:
        ARCH_CONFIG_REGISTRY[arch](args)
    except UsageError as error:
        assert "\n" not in str(error)
        return None
    return vars(args)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_what_a_preset_has_for_another_model_is_neither_recorded_nor_accepted(family):
    fields = {field.name: field.metadata for field in dataclasses.fields(family.dataclass)}
    for arch in kinds(family.presets):
        preset = family.presets[arch]
        for chosen in CHOICES:
            settings = completed(family, arch, **dict([chosen]))
            for name in preset if settings is not None else ():
                if fields[name]["role"] != "model" or name in SIZES or name == chosen[0]:
                    continue
                used = has_effect(name, settings, family.dataclass)
                default = fields[name]["default"]
                assert settings[name] == (preset[name] if used else default), (arch, chosen, name)
                if not used and preset[name] != default:
                    said = dict([chosen, (name, preset[name])])
                    assert completed(family, arch, **said) is None, (arch, said)


@pytest.mark.parametrize("arch", [MODEL, "shaw_base"])
def test_hydra_refuses_them_when_it_builds_the_model(arch):
    def hydra(**settings):
        """Build a model as fairseq-hydra-train does; returns the configuration."""
        small = {"encoder_layers": 1, "decoder_layers": 1, "position_encoding": "alibi"}
        cfg = OmegaConf.merge(TRANSLATION.dataclass, {"_name": arch, **small, **settings})
        if arch != MODEL:
            ARCH_CONFIG_REGISTRY[arch](cfg)
        models.build_model(cfg, TranslationTask())
        return cfg

    assert hydra(rotary_base=10000.0).shaw_values is False
    with pytest.raises(UsageError, match="--rotary-base 500.0: has no effect with .* alibi"):
        hydra(rotary_base=500.0)
    with pytest.raises(UsageError, match="--decoder-position-encoding '': is empty"):
        hydra(decoder_position_encoding="")
    with pytest.raises(UsageError, match="--alignment-layer 1: .* below --decoder-layers 1"):
        hydra(alignment_layer=1)


def test_a_checkpoint_with_such_settings_loads():
    settings = model_settings(MODEL, *TINY, *ALIBI)
    older = {"rotary_base": 500.0, "cls_reset": "each", "encoder_position_encoding": ""}
    older.update(alignment_layer=9, layer_norm_eps=0.0)
    tokens = sentences(1, 3)
    model = models.build_model(OmegaConf.merge(settings, older), TranslationTask())
    assert model(tokens, None, tokens)[0].isfinite().all()


def said(caplog):
    return [r.getMessage() for r in caplog.records if "no effect" in r.getMessage()]


def test_sizes_of_what_units_replace_are_named_once(caplog):
    flags = ["--encoder-ffn-embed-dim", "64", "--activation-dropout", "0.1", "--dropout", "0.3"]
    flags += ["--activation-fn", "gelu", "--encoder-attention-heads", "4"]
    parse(MODEL, *GATED, *flags, "--decoder-attention-heads", "4")
    (message,) = said(caplog)
    for flag in ("ffn-embed-dim 64", "activation-dropout", "activation-fn", "attention-heads 4"):
        assert f"--{flag}" in message or f"--encoder-{flag}" in message
    # the decoder's cross-attention uses --decoder-attention-heads
    assert "--dropout" not in message and "--decoder" not in message


def test_a_masked_language_model_has_an_activation_in_its_head(caplog):
    flags = ["posenc_masked_lm", *GATED, "--activation-fn", "tanh"]
    model_settings(*flags, task="masked_lm")
    assert said(caplog) == []
    model_settings(*flags, "--lm-head", "tied", task="masked_lm")
    assert "--activation-fn tanh" in said(caplog)[0]


def test_sizes_that_follow_others_follow_what_a_program_changes():
    """``fairseq.options.get_args`` changes settings after the architecture has set them."""
    args = options.get_args("data", "masked_lm", "roformer_masked_lm_tiny", encoder_embed_dim=16)
    model = models.build_model(args, task_of("masked_lm"))
    assert model.encoder.sentence_encoder.embed_tokens.weight.size(1) == 16
    assert "encoder.sentence_encoder.embed_project.weight" not in model.state_dict()
    assert model.completed_settings.encoder_input_dim == 16
    settings = model_settings("roformer_masked_lm_tiny", task="masked_lm")
    assert settings.encoder_input_dim is None  # set when the model is built
    models.build_model(settings, task_of("masked_lm"))
    assert settings.encoder_input_dim == settings.encoder_embed_dim
    assert settings.num_positions == settings.max_positions
