"""Flags, defaults and presets: as in fairseq where fairseq has them, and never silently lost."""

import argparse
import dataclasses
from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import OmegaConf
from support.helpers import (
    EVERY_ENCODING,
    TINY,
    TranslationTask,
    build,
    causal_only,
    parameters_of,
    parse,
    without_values,
)

from fairseq_posenc.configuration.resolve import configure, nested
from fairseq_posenc.encodings.registry import parse_pattern
from fairseq_posenc.models import FAMILIES
from fairseq_posenc.models.presets import TRANSLATION as PRESETS
from fairseq_posenc.models.translation import MODEL, TRANSLATION

pytestmark = pytest.mark.properties

STOCK_OF = {
    "posenc_transformer": "transformer",
    "roformer_iwslt_de_en": "transformer_iwslt_de_en",
    "roformer_base": "transformer",
    "roformer_wmt_en_de": "transformer_wmt_en_de",
    "roformer_big": "transformer_vaswani_wmt_en_de_big",
}


def flags_of(model):
    parser = argparse.ArgumentParser()
    MODEL_REGISTRY[model].add_args(parser)
    return {option: action for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("theirs, model", [("transformer", MODEL), ("transformer_lm", "posenc_lm")])
def test_every_flag_of_the_stock_model_is_ours_too(theirs, model):
    stock, ours = flags_of(theirs), flags_of(model)
    assert set(stock) <= set(ours)
    for name, action in stock.items():
        assert type(ours[name]) is type(action), name  # store, store_true, …
        assert ours[name].choices == action.choices, name


def test_every_flag_of_ours_has_a_help_text_with_its_default():
    assert all(action.help for action in flags_of(MODEL).values())
    assert "(default: 10000.0)" in flags_of(MODEL)["--rotary-base"].help


@pytest.mark.parametrize("arch, stock", STOCK_OF.items())
def test_presets_have_the_sizes_of_their_stock_counterparts(arch, stock):
    with without_values():
        ours, theirs = build(arch), build(stock)
    for side in ("encoder", "decoder"):
        a, b = getattr(ours, side), getattr(theirs, side)
        assert len(a.layers) == len(b.layers)
        assert a.layers[0].fc1.weight.shape == b.layers[0].fc1.weight.shape
        assert a.layers[0].self_attn.num_heads == b.layers[0].self_attn.num_heads
        assert a.dropout_module.p == b.dropout_module.p
    # rotary adds no parameters and has no table
    assert {k: p.shape for k, p in parameters_of(ours).items()} == {
        k: p.shape for k, p in parameters_of(theirs).items()
    }


def test_roformer_base_is_the_model_of_table_1():
    cfg = nested(parse("roformer_base", "--rotary-base", "500").model)
    for side in (cfg.encoder, cfg.decoder):
        assert (side.layers, side.embed_dim, side.attention_heads) == (6, 512, 8)
        assert side.ffn_embed_dim == 2048
    assert (cfg.position_encoding, cfg.dropout, cfg.rotary_base) == ("rotary", 0.1, 500.0)


@pytest.mark.parametrize("arch", PRESETS)
def test_every_architecture_is_registered_and_completes_its_configuration(arch):
    assert arch in ARCH_MODEL_REGISTRY
    cfg = parse(arch).model
    assert cfg._name == arch
    for name, value in PRESETS[arch].items():
        assert cfg[name] == value
    settings = {f.name: f.metadata for f in dataclasses.fields(TRANSLATION.dataclass)}
    optional = {n for n, m in settings.items() if m.get("stored") and m["default"] is None}
    optional |= {"position_ids", "position_separators"}
    unset = {name for name in cfg if cfg[name] is None} - optional
    assert not {n for n in unset if n.startswith(("rotary", "position")) or n.endswith("_dim")}


def test_users_win_over_presets_and_decoders_follow_encoders():
    cfg = parse("roformer_base", "--encoder-layers", "3", "--encoder-embed-dim", "128").model
    assert (cfg.encoder_layers, cfg.decoder_layers) == (3, 6)
    assert cfg.encoder_embed_dim == cfg.decoder_embed_dim == cfg.decoder_output_dim == 128


@pytest.mark.parametrize("arch", PRESETS)
def test_defaults_survive_what_hydra_does_to_a_configuration(arch):
    """fairseq-hydra-train fills the dataclass in before the architecture is asked."""
    cfg = OmegaConf.merge(TRANSLATION.dataclass, {"_name": arch, "encoder_layers": 1})
    model = ARCH_MODEL_REGISTRY[arch]
    ARCH_CONFIG_REGISTRY[arch](cfg)
    want = dict(parse(arch).model, encoder_layers=1)
    with without_values():
        assert len(model.build_model(cfg, TranslationTask()).encoder.layers) == 1
    assert dict(cfg.items()) == want


@pytest.mark.parametrize("name", EVERY_ENCODING)
def test_configuring_twice_changes_nothing(name):
    cfg = Namespace(position_encoding=name)
    if causal_only(name):
        cfg.encoder_position_encoding = "rotary"
    configure(cfg, TRANSLATION, {}, None)
    once = dict(vars(cfg))
    configure(cfg, TRANSLATION, {"encoder_layers": 1}, None)
    assert vars(cfg) == once


@pytest.mark.parametrize(
    "flags, encoding",
    [
        ([], "sinusoidal"),
        (["--encoder-learned-pos"], "learned"),
        (["--encoder-learned-pos", "--decoder-learned-pos"], "learned"),
        (["--no-token-positional-embeddings"], "none"),
    ],
)
def test_fairseqs_own_position_flags_choose_the_encoding(flags, encoding):
    model, stock = build(MODEL, *TINY, *flags), build("transformer", *TINY, *flags)
    assert model.encoder.encoding.name == encoding and f"encoding={encoding}" in repr(model.encoder)
    assert type(model.encoder.embed_positions) is type(stock.encoder.embed_positions)
    assert set(parameters_of(model)) == set(parameters_of(stock))


def test_presets_name_known_fields_and_encodings():
    for presets in (family.presets for family in FAMILIES.values()):
        for preset in presets.values():
            parse_pattern(preset.get("position_encoding", "none"))
    fields = set(TRANSLATION.dataclass.__dataclass_fields__)
    assert all(set(preset) <= fields for preset in PRESETS.values())
