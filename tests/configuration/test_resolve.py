"""Flags, defaults, presets and former names: as in fairseq, and never silently lost."""

import argparse
import dataclasses
from argparse import Namespace

import pytest
import torch
from fairseq import models
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import OmegaConf
from support.commands import shape
from support.helpers import (
    EVERY_ENCODING,
    PAD,
    TINY,
    VOCABULARY,
    TranslationTask,
    build,
    causal_only,
    model_settings,
    parameters_of,
    parse,
    sentences,
    without_values,
)

from fairseq_posenc.configuration.resolve import configure
from fairseq_posenc.models.presets import TRANSLATION as PRESETS
from fairseq_posenc.models.translation import MODEL, TRANSLATION

pytestmark = pytest.mark.properties


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


# --- former names


#: flags of today, and the settings of a checkpoint by the names and values they had
TODAY = ["--position-encoding", "learned+bert_ad+shaw+deberta", "--norm", "rms"]
TODAY += ["--shaw-max-distance", "3", "--deberta-max-distance", "5", "--init-weights", "default"]
FORMER = {
    **{"position_encoding": "learned+separate+shaw+deberta", "norm": "unit"},
    **{"shaw_distance": 3, "deberta_distance": 5, "init_weights": "usual"},
}
#: absent then: the names of today, and flags that are younger than the renaming
YOUNGER = {"shaw_max_distance", "deberta_max_distance", "feed_forward"}
YOUNGER |= {"encoder_position_encoding", "decoder_position_encoding"}
OF_FAMILY = {
    "masked_lm": ("posenc_masked_lm", shape(2, 32, 48, 4, "encoder")),
    "translation": ("posenc_transformer", TINY),
    "language_modeling": ("posenc_lm", shape(2, 32, 48, 4, "decoder")),
}


@pytest.mark.parametrize("family", OF_FAMILY)
@torch.no_grad()
def test_former_names(family):
    arch, small = OF_FAMILY[family]
    settings = Namespace(_name=family, tokens_per_sample=64)
    task = Namespace(source_dictionary=VOCABULARY, target_dictionary=VOCABULARY, cfg=settings)
    cfg = model_settings(arch, *small, *TODAY, task=family)
    today = models.build_model(cfg, task).eval()
    for parameter in today.parameters():  # small initial weights would hide the positions
        torch.nn.init.normal_(parameter, std=0.3)
    saved = {**OmegaConf.to_container(cfg, resolve=True, enum_to_str=True), **FORMER}
    older = OmegaConf.create({name: x for name, x in saved.items() if name not in YOUNGER})
    loaded = models.build_model(older, task, from_checkpoint=True).eval()
    loaded.load_state_dict(today.state_dict(), strict=True, model_cfg=older)
    tokens = sentences(2, 12)
    tokens[1, 7:], tokens[:, 0] = PAD, VOCABULARY.bos()
    inputs = (tokens, None, tokens) if family == "translation" else (tokens,)
    assert torch.equal(loaded(*inputs)[0], today(*inputs)[0])
