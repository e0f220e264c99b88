"""Parsing and checking construct no module and draw no random number."""

import random

import numpy as np
import pytest
import torch
from fairseq import models
from support.helpers import TINY, TranslationTask, encoding_of_sides, model_settings

from fairseq_posenc.encodings import ENCODINGS, PositionEncoding
from fairseq_posenc.models import FAMILIES


def states():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_random_numbers_are_those_from_before_the_checks(encoding):
    """The weights that a seed gives do not depend on what is checked."""
    family, before = FAMILIES["posenc_transformer"], states()
    settings = model_settings("posenc_transformer", *TINY, *encoding_of_sides(encoding))
    family.complete_for_task(settings, TranslationTask(), TranslationTask())
    assert states() == before


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_model_constructs_its_encodings_once(encoding, monkeypatch):
    """One composition a stack; both stacks of this model have only one."""
    built, plain = [], PositionEncoding.__init__

    def noting(self, *arguments):
        built.append(self)
        plain(self, *arguments)

    settings = model_settings("posenc_transformer", *TINY, *encoding_of_sides(encoding))
    monkeypatch.setattr(PositionEncoding, "__init__", noting)
    model = models.build_model(settings, TranslationTask())
    used = [one for stack in (model.encoder, model.decoder) for one in stack.encodings.values()]
    assert built == used
