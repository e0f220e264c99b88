"""Checkpoints whose settings have names from before a renaming load with the same numbers."""

from argparse import Namespace

import pytest
import torch
from fairseq import models
from omegaconf import OmegaConf
from support.commands import shape
from support.helpers import PAD, TINY, VOCABULARY, model_settings, sentences

pytestmark = pytest.mark.properties

#: flags of today, and the settings of a checkpoint by the names and values they had
CASES = {
    "bert_ad": (
        ["--position-encoding", "bert_ad", "--norm", "rms", "--init-weights", "default"],
        {"position_encoding": "separate", "norm": "unit", "init_weights": "usual"},
    ),
    "composed": (
        ["--position-encoding", "learned+bert_ad"],
        {"position_encoding": "learned+separate"},
    ),
    "shaw": (
        ["--position-encoding", "shaw", "--shaw-max-distance", "3"],
        {"shaw_distance": 3, "shaw_max_distance": None},
    ),
    "deberta": (
        ["--position-encoding", "deberta", "--deberta-max-distance", "5"],
        {"deberta_distance": 5, "deberta_max_distance": None},
    ),
}
#: younger than the renaming
YOUNGER = ("feed_forward", "encoder_position_encoding", "decoder_position_encoding")
FAMILIES = {
    "masked_lm": ("posenc_masked_lm", shape(2, 32, 48, 4, "encoder")),
    "translation": ("posenc_transformer", TINY),
    "language_modeling": ("posenc_lm", shape(2, 32, 48, 4, "decoder")),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_former_names(family, case):
    (arch, small), (flags, former) = FAMILIES[family], CASES[case]
    settings = Namespace(_name=family, tokens_per_sample=64)
    task = Namespace(source_dictionary=VOCABULARY, target_dictionary=VOCABULARY, cfg=settings)
    cfg = model_settings(arch, *small, *flags, task=family)
    today = models.build_model(cfg, task).eval()
    for parameter in today.parameters():  # small initial weights would hide the positions
        torch.nn.init.normal_(parameter, std=0.3)
    saved = {**OmegaConf.to_container(cfg, resolve=True, enum_to_str=True), **former}
    absent = {*YOUNGER, *(name for name, value in former.items() if value is None)}
    older = OmegaConf.create({name: x for name, x in saved.items() if name not in absent})
    loaded = models.build_model(older, task, from_checkpoint=True).eval()
    loaded.load_state_dict(today.state_dict(), strict=True, model_cfg=older)
    tokens = sentences(2, 12)
    tokens[1, 7:], tokens[:, 0] = PAD, VOCABULARY.bos()
    inputs = (tokens, None, tokens) if family == "translation" else (tokens,)
    assert torch.equal(loaded(*inputs)[0], today(*inputs)[0])
