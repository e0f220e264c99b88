"""BigBird, cosFormer, Linformer, softmax features: properties that no general test covers."""

import pytest
import torch
from fairseq import models
from support.helpers import (
    LAYERS,
    TranslationTask,
    model_settings,
    sentences,
    skip_without_cpu_kernels,
    tiny,
)
from support.linear_layers import B, D, H, T, apply, layer_of
from support.masked_language_models import texts
from support.masked_language_models import tiny as masked_lm
from support.parts import attended_alone
from support.sparse_layers import KERNELS, golden_layer

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.averaging import average_checkpoints
from fairseq_posenc.packs.long_sequences.linformer import SHARING

pytestmark = pytest.mark.formulas
LAYERS["random"] = KERNELS["random"]


@pytest.mark.parametrize(
    "kernel, flag, name",
    [("reformer", "--reformer-seed", "rotations"), ("random", "--bigbird-seed", "random_blocks")],
)
def test_random_numbers_are_those_of_the_checkpoint(kernel, flag, name, tmp_path):
    """Random numbers differ between layers, not between processes, and are never averaged."""

    def numbers(model):
        return [value for key, value in model.state_dict().items() if key.endswith(name)]

    variants, paths = ((), ("--dropout", "0.1"), (flag, "2")), []
    models = [tiny(f"{kernel}:rotary", *flags) for flags in variants]
    first, again, other = map(numbers, models)
    assert len({value.numpy().tobytes() for value in first}) == 4
    assert all(map(torch.equal, first, again)) and not any(map(torch.equal, first, other))
    for number in (0, 2):
        paths.append(str(tmp_path / f"{number}.pt"))
        cfg = {"model": {"_name": "posenc_transformer"}}
        torch.save({"model": models[number].state_dict(), "cfg": cfg, "args": None}, paths[-1])
    with pytest.raises(UsageError, match=rf"{name} is not the same .*meaningless"):
        average_checkpoints(paths)
    models[2].load_state_dict(models[0].state_dict())
    assert all(map(torch.equal, numbers(models[2]), first))


def test_a_checkpoint_may_have_no_random_blocks_but_not_another_number():
    model = tiny("random:rotary")
    state = model.state_dict()
    full = {key: value for key, value in state.items() if "random_blocks" not in key}
    model.load_state_dict(full, strict=True)  # as from a model with full attention
    with pytest.raises(UsageError, match="--bigbird-random-blocks 1: .* with 2 .*blocks 2"):
        tiny("random:rotary", "--bigbird-random-blocks", "1").load_state_dict(state)


@torch.no_grad()
def test_bigbird_of_transformers(golden):
    """The reference stores its random blocks, which replace ours here."""
    ref = golden("bigbird")
    x, layer = ref["inputs"]["x"], golden_layer(ref, "bigbird")
    random = ref["inputs"]["random"]
    drawn = torch.cat((torch.full_like(random[:1], -1), random)).unsqueeze(0)
    layer._drawn = lambda *blocks: drawn
    out = attended_alone(layer, x)
    torch.testing.assert_close(out, ref["outputs"]["out"], atol=1e-5, rtol=1e-5)


COSFORMER = ["--attention", "cosformer", "--max-source-positions", "20"]
COSFORMER += ["--max-target-positions", "12"]


def test_the_length_of_cosformer_is_the_longest_input_which_is_kept():
    settings = model_settings("posenc_transformer", "--position-encoding", "none", *COSFORMER)
    assert settings.cosformer_length == 20
    settings.max_source_positions = 10  # as in an evaluation with other limits
    models.build_model(settings, TranslationTask())
    assert settings.cosformer_length == 20
    model = tiny("none", *COSFORMER)
    model.decoder(sentences(B, 20), features_only=True, encoder_out=None)
    with pytest.raises(UsageError, match="--cosformer-length 20: a sequence has 21 tokens"):
        model.encoder(sentences(B, 21))


LINFORMER = ["--attention", "linformer", "--linformer-size", "5"]


def test_shared_projections_and_longer_sequences():
    counts = {}
    for sharing in SHARING:
        model = masked_lm("none", *LINFORMER, "--linformer-sharing", sharing)
        counts[sharing] = sum(p.numel() for p in model.parameters())
    one = 5 * 64  # entries of a projection; the model has 2 layers and 4 heads
    more = [(2 * 2 * 4 - 1) * one, (2 * 2 - 1) * one, (2 - 1) * one, 0]
    assert [counts[name] - counts["layerwise"] for name in SHARING] == more
    with pytest.raises(UsageError, match="--linformer-length 64: a sequence has 65 tokens"):
        model(texts(1, 65))


@torch.no_grad()
def test_outputs_beyond_half_precision_under_autocast():
    """Under autocast the input is in float32, but the output projection is in float16."""
    skip_without_cpu_kernels(torch.float16)
    layer, x = layer_of("softmax_features", causal=True), torch.randn(B, T, H * D)
    layer.q_proj.weight.mul_(8), layer.k_proj.weight.mul_(8)
    layer.v_proj.weight.mul_(5e4 / layer.v_proj(x).abs().max())
    layer.out_proj.weight.copy_(torch.eye(H * D)), layer.out_proj.bias.zero_()
    assert apply(layer, x, True).abs().max() > torch.finfo(torch.float16).max
    with torch.autocast("cpu", torch.float16):
        out = apply(layer, x, True)
    assert out.dtype is torch.float16 and torch.isfinite(out).all()
