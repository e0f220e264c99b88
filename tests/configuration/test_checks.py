"""A command line is checked once; that constructs no module and draws no random number."""

import random
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import models
from omegaconf import OmegaConf
from support.commands import shape
from support.helpers import (
    TINY,
    VOCABULARY,
    TranslationTask,
    encoding_of_sides,
    model_settings,
    parse,
)

import fairseq_posenc
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import ENCODINGS, PositionEncoding
from fairseq_posenc.models import FAMILIES

pytestmark = pytest.mark.properties


def states():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_checks_draw_no_numbers_and_a_model_constructs_its_encodings_once(encoding, monkeypatch):
    """The weights that a seed gives do not depend on what is checked."""
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
    assert built == used  # one composition a stack


def calls(function):
    """The result of *function*, and how often it calls what in the package."""
    found, folder = Counter(), str(Path(fairseq_posenc.__file__).parent)

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            found[frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        return function(), found
    finally:
        sys.setprofile(None)


def test_a_command_line_is_completed_in_one_pass_which_building_reads():
    cfg, found = calls(lambda: parse("roformer_tiny", "--rotary-base", "500"))
    assert found["configure"] == 1 and found["check_encodings"] == 2  # an encoder and a decoder
    assert found["check_attention"] == 1 and sum(found.values()) <= 600
    task = TranslationTask()
    task.cfg = cfg.task
    model, found = calls(lambda: models.build_model(cfg.model, task))
    assert found["configure"] == found["check_encodings"] == 0
    assert model.completed_settings.rotary_base == 500.0


def test_what_a_program_changes_after_the_command_line_is_checked():
    cfg, task = parse("roformer_tiny"), TranslationTask()
    task.cfg, cfg.model.encoder_embed_dim = cfg.task, 100
    with pytest.raises(UsageError, match="head size"):
        models.build_model(cfg.model, task)


@pytest.mark.parametrize("encoding", ["rotary", "learned", "sinusoidal", "learned+rotary"])
@pytest.mark.parametrize("family", ["posenc_masked_lm", "posenc_transformer", "posenc_lm"])
def test_a_model_records_the_same_settings_wherever_they_were_completed(family, encoding):
    """On the command line, or where the model is built, as under hydra."""
    small = {"posenc_masked_lm": "encoder", "posenc_lm": "decoder"}.get(family)
    sides, records = [small] if small else ["encoder", "decoder"], []
    words = [word for side in sides for word in shape(1, 8, 8, 2, side)]
    task = {"encoder": "masked_lm", "decoder": "language_modeling"}.get(small, "translation")
    for completed in (True, False):
        cfg = model_settings(family, "--position-encoding", encoding, *words, task=task)
        if not completed:
            FAMILIES[family].completed = {}
        settings = Namespace(_name=task, tokens_per_sample=64, args=None)
        holder = Namespace(source_dictionary=VOCABULARY, target_dictionary=VOCABULARY, cfg=settings)
        holder.args = settings
        models.build_model(cfg, holder if small else TranslationTask())
        records.append(OmegaConf.to_container(cfg))
    assert records[0] == records[1]
