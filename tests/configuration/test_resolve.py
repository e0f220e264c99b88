"""Flags, defaults and presets work as in fairseq; settings under former names are read."""

import argparse

import pytest
import torch
from fairseq import models
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import OmegaConf
from support.commands import shape
from support.helpers import (
    PAD,
    TINY,
    VOCABULARY,
    TranslationTask,
    kinds,
    model_settings,
    parse,
    sentences,
    task_of,
    without_values,
)

from fairseq_posenc.models import family_of
from fairseq_posenc.models.presets import LANGUAGE_MODEL, MASKED_LM
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
def test_an_architecture_has_what_its_preset_says_also_under_hydra(arch):
    """With Hydra, all fields have their defaults before the architecture sets its values."""
    want = dict(parse(arch).model, encoder_layers=1)
    cfg = OmegaConf.merge(TRANSLATION.dataclass, {"_name": arch, "encoder_layers": 1})
    model = ARCH_MODEL_REGISTRY[arch]
    ARCH_CONFIG_REGISTRY[arch](cfg)
    with without_values():
        assert len(model.build_model(cfg, TranslationTask()).encoder.layers) == 1
    assert dict(cfg.items()) == want
    assert want.items() >= {**PRESETS[arch], "_name": arch, "encoder_layers": 1}.items()


# --- former names


#: current flags, and the same settings with the names and values of an older checkpoint
TODAY = ["--position-encoding", "learned+bert_ad+shaw+deberta", "--norm", "rms"]
TODAY += ["--shaw-max-distance", "3", "--deberta-max-distance", "5", "--init-weights", "default"]
FORMER = {
    **{"position_encoding": "learned+separate+shaw+deberta", "norm": "unit"},
    **{"shaw_distance": 3, "deberta_distance": 5, "init_weights": "usual"},
}
#: settings that such a checkpoint lacks: new names, and flags newer than the renaming
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
    task = task_of(family)
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


#: Flags that presets need at the small sizes of these tests, such as enough layers for a pattern.
OWN_FLAGS = {
    "roformer_align": ["--alignment-layer", "1"],
    "modernbert_masked_lm_tiny": ["--encoder-layers", "3"],
    "modernbert_masked_lm_base": ["--encoder-layers", "3"],
    "rnope_swa_lm": ["--decoder-layers", "4"],
    "llama_lm_small": ["--kv-heads", "1"],
}


@pytest.mark.parametrize("arch", [*kinds(PRESETS), *kinds(MASKED_LM), *kinds(LANGUAGE_MODEL)])
def test_every_kind_of_preset_learns_and_is_built_again_from_what_its_checkpoint_keeps(arch):
    family = family_of(arch)
    name = family.tasks[0]
    task = task_of(name)
    flags = [*OF_FAMILY[name][1], *OWN_FLAGS.get(arch, [])]
    cfg = model_settings(arch, *flags, task=name)
    model = models.build_model(cfg, task)
    tokens = sentences(2, 9)
    inputs = (tokens, None, tokens) if name == "translation" else (tokens,)
    model(*inputs)[0].pow(2).mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    record = OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    preset = family.presets[arch]
    assert record.position_encoding == preset["position_encoding"]
    assert record.get("untie_cls", False) == preset.get("untie_cls", False)
    again = models.build_model(record, task, from_checkpoint=True).eval()
    again.load_state_dict(model.state_dict(), strict=True, model_cfg=record)
    assert torch.equal(again(*inputs)[0], model.eval()(*inputs)[0])
