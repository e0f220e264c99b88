"""BigBird, cosFormer and softmax features: what the tests over all kernels do not see of them."""

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
from support.sparse_layers import KERNELS, golden_layer, golden_output

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.averaging import average_checkpoints

pytestmark = pytest.mark.formulas


def test_random_blocks_are_those_of_the_checkpoint():
    one, other = (tiny("rotary", *KERNELS["random"], "--bigbird-seed", seed) for seed in ("1", "2"))
    blocks = [layer.self_attn.random_blocks for layer in (*one.encoder.layers, *one.decoder.layers)]
    assert len({each.numpy().tobytes() for each in blocks}) == 4
    assert not torch.equal(other.encoder.layers[0].self_attn.random_blocks, blocks[0])
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.encoder.layers[0].self_attn.random_blocks, blocks[0])
    state = {k: v for k, v in one.state_dict().items() if "random_blocks" not in k}
    other.load_state_dict(state, strict=True)  # of a model with full attention
    fewer = tiny("rotary", *KERNELS["random"], "--bigbird-random-blocks", "1")
    with pytest.raises(UsageError, match="--bigbird-random-blocks 1: .* with 2 .*blocks 2"):
        fewer.load_state_dict(one.state_dict())


def test_checkpoints_of_other_random_blocks_are_not_averaged(tmp_path):
    paths = []
    for seed in ("1", "2"):
        model = tiny("rotary", *KERNELS["random"], "--bigbird-seed", seed)
        paths.append(str(tmp_path / f"{seed}.pt"))
        cfg = {"model": {"_name": "posenc_transformer"}}
        torch.save({"model": model.state_dict(), "cfg": cfg, "args": None}, paths[-1])
    with pytest.raises(UsageError, match=r"random_blocks is not the same .*meaningless"):
        average_checkpoints(paths)


@torch.no_grad()
def test_bigbird_of_transformers(golden):
    """The reference uses the random blocks that it was given, and no numbers of ours."""
    ref = golden("bigbird")
    x, layer = ref["inputs"]["x"], golden_layer(ref, "bigbird")
    random = ref["inputs"]["random"]
    drawn = torch.cat((torch.full_like(random[:1], -1), random)).unsqueeze(0)
    layer._drawn = lambda *blocks: drawn
    out = golden_output(layer, x, None)
    torch.testing.assert_close(out, ref["outputs"]["out"], atol=1e-5, rtol=1e-5)


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
