"""Rules of positions for numbers, drawn positions beside them, and language models."""

import pytest
import torch
from support.causal_language_models import tiny as language_model
from support.helpers import PAD, VOCABULARY, sentences

from tests.encodings.test_position_ids import RULES, model_of


def test_a_shift_leaves_tokens_without_position_at_zero():
    flags = ("--random-positions", "30", "--position-sampler", "shift")
    model, source = model_of("digits", "learned", *flags), sentences(3, 9)
    rows = model.encoder.positions.assigner
    counted = torch.arange(9).unsqueeze(0)
    plain = rows.of_batch(source, counted, False).rows
    moved = rows.of_batch(source, counted, True).rows
    assert plain.eq(0).any() and moved[plain == 0].eq(0).all()
    shifts = [set((moved - plain)[row][plain[row] > 0].tolist()) for row in range(3)]
    assert [len(shift) for shift in shifts] == [1, 1, 1] and len(set.union(*shifts)) > 1


@pytest.mark.parametrize("name", ["learned", "rotary", "learned+transformer_xl"])
@torch.no_grad()
def test_language_models_continue_coupled_positions(name):
    model = language_model(name, "--position-ids", "coupling", *RULES["coupling"])
    tokens = sentences(3, 14)
    tokens[:, 0] = VOCABULARY.eos()
    tokens[1] = torch.cat((torch.full((3,), PAD), tokens[1, :11]))
    full, state = model(tokens)[0], {}
    for step in range(1, 15):
        out, _ = model.decoder(tokens[:, :step], incremental_state=state)
        real = tokens[:, step - 1].ne(PAD)
        torch.testing.assert_close(out[real, -1], full[real, step - 1], atol=1e-5, rtol=0)
