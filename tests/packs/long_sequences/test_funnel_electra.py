"""The Funnel encoder in models of the pack pretraining."""

import pytest
import torch
from support.helpers import PAD
from support.masked_language_models import build, texts

pytest.importorskip("fairseq_posenc.packs.pretraining")


@torch.no_grad()
def test_generator_and_discriminator_may_be_funnels():
    model = build("roformer_electra_tiny", "--funnel-stages", "1,1", "--funnel-decoder-layers", "1")
    encoders = (model.encoder.sentence_encoder, model.generator.sentence_encoder)
    assert [encoder.stages for encoder in encoders] == [[1, 1]] * 2
    tokens = texts(3, 14)
    tokens[1, 9:] = tokens[2, 2:] = PAD
    logits, extra = model(tokens, masked_tokens=tokens.eq(tokens[0, 1]))
    assert extra["replaced"].shape == tokens.shape and torch.isfinite(logits).all()
