"""cosFormer and Efficient Attention's softmax: what test_linear_*.py do not see of them."""

import pytest
import torch
from fairseq import models
from support.helpers import (
    TranslationTask,
    model_settings,
    sentences,
    skip_without_cpu_kernels,
    tiny,
)
from support.linear_layers import B, D, H, T, apply, layer_of

from fairseq_posenc.basics.errors import UsageError

COSFORMER = ["--attention", "cosformer", "--max-source-positions", "20"]
COSFORMER += ["--max-target-positions", "12"]


def test_the_length_of_cosformer_is_the_longest_input_and_is_kept():
    settings = model_settings("posenc_transformer", "--position-encoding", "none", *COSFORMER)
    assert settings.cosformer_length == 20
    settings.max_source_positions = 10  # as in an evaluation with other limits
    models.build_model(settings, TranslationTask())
    assert settings.cosformer_length == 20


def test_longer_sequences_are_refused():
    model = tiny("none", *COSFORMER)
    model.decoder(sentences(B, 20), features_only=True, encoder_out=None)
    with pytest.raises(UsageError, match="--cosformer-length 20: a sequence has 21 tokens"):
        model.encoder(sentences(B, 21))


@torch.no_grad()
def test_outputs_beyond_half_precision_under_autocast():
    """There the input is float32, and the projection after attention is not."""
    skip_without_cpu_kernels(torch.float16)
    layer, x = layer_of("softmax_features", causal=True), torch.randn(B, T, H * D)
    layer.q_proj.weight.mul_(8), layer.k_proj.weight.mul_(8)
    layer.v_proj.weight.mul_(5e4 / layer.v_proj(x).abs().max())
    layer.out_proj.weight.copy_(torch.eye(H * D)), layer.out_proj.bias.zero_()
    assert apply(layer, x, True).abs().max() > torch.finfo(torch.float16).max
    with torch.autocast("cpu", torch.float16):
        out = apply(layer, x, True)
    assert out.dtype is torch.float16 and torch.isfinite(out).all()
