"""BigBird: its random blocks, in checkpoints and against transformers' reference.

test_sparse_attention.py compares it with dense attention.
"""

import pytest
import torch
from support.helpers import tiny
from support.sparse_layers import KERNELS, golden_layer, golden_output

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.averaging import average_checkpoints


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
