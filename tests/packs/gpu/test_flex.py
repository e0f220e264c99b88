"""FlexAttention: logits by distance in PyTorch's kernel have the same effect as a dense bias.

Without a GPU, PyTorch computes ``flex_attention`` for all pairs of tokens, with gradients if its
check of the device is patched.  The blocks of keys that a GPU would skip are compared with the
blocks that PyTorch derives from the mask.
"""

import pytest
import torch
from support import causal_language_models, masked_language_models
from support.helpers import LAYERS, padded_batch, sentences, tiny

from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.base import DistanceBias
from fairseq_posenc.packs.gpu.flex import BLOCK, HAS_FLEX, FlexAttention, visible_blocks
from tests import test_gpu, test_properties

pytestmark = pytest.mark.properties

needs_flex = pytest.mark.skipif(not HAS_FLEX, reason="needs PyTorch 2.6")
BY_DISTANCE = [
    name
    for name, entry in ENCODINGS.items()
    if entry.shared is not None and issubclass(entry.shared, DistanceBias)
]
#: the kernel needs heads of at least 16 channels
FLEX = (
    *("--attention-backend", "flex"),
    *("--encoder-attention-heads", "2", "--decoder-attention-heads", "2"),
)
LAYERS["flex"] = list(FLEX)
TEXT = (padded_batch()[0], None, padded_batch()[1])


@pytest.fixture
def on_cpu(monkeypatch):
    """Use PyTorch's kernel on the CPU, with gradients."""
    from torch.nn.attention import flex_attention

    monkeypatch.setattr(flex_attention, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(FlexAttention, "serves", staticmethod(lambda x: True))


def pair_of_models(*flags):
    ours, dense = tiny(*flags, *FLEX), tiny(*flags, *FLEX, "--attention-backend", "fused")
    dense.load_state_dict(ours.state_dict())
    return ours, dense


@needs_flex
@torch.no_grad()
def test_keys_may_be_others_than_the_queries(on_cpu):
    """The queries and keys of a mask decoder differ; all parameters are moved away from 0."""
    flags = ["--encoder-attention-heads", "2", "--mask-decoder-layers", "2"]
    ours = masked_language_models.tiny("alibi", *flags, "--attention-backend", "flex")
    dense = masked_language_models.tiny("alibi", *flags)
    for parameter in ours.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    dense.load_state_dict(ours.state_dict())
    tokens = masked_language_models.texts()
    torch.testing.assert_close(ours(tokens)[0], dense(tokens)[0], atol=1e-4, rtol=1e-4)


@needs_flex
@pytest.mark.parametrize(
    "flags", [(name,) for name in BY_DISTANCE] + [("rotary+t5", "--kv-heads", "1")]
)
def test_outputs_and_gradients_equal_those_of_the_dense_bias(flags, on_cpu):
    models = pair_of_models(*flags)
    outputs = [model(*TEXT)[0] for model in models]
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=0)
    for output in outputs:
        output.square().mean().backward()
    for ours, theirs in zip(*(model.parameters() for model in models)):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)


@needs_flex
def test_a_cache_gives_what_the_full_forward_gives(on_cpu):
    name, steps = "flex:rotary+alibi", [3, 1, 1, 4]
    test_properties.test_cached_decoding_equals_the_full_forward(name, steps, padded=True)


def largest_kept(model, tokens):
    """The size of the largest tensor that the forward pass saves for the backward pass."""
    sizes = []

    def keep(x):
        sizes.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        model(tokens)[0].sum().backward()
    return max(sizes)


@needs_flex
def test_nothing_of_all_pairs_is_kept_for_the_backward_pass(on_cpu):
    tokens = sentences(1, 60)
    heads = ("--decoder-attention-heads", "2")
    dense, ours = (
        causal_language_models.tiny("t5", "--attention-backend", backend, *heads)
        for backend in ("fused", "flex")
    )
    assert largest_kept(dense, tokens) >= 2 * 60 * 60  # all pairs of two heads
    assert largest_kept(ours, tokens) < 60 * 60


@needs_flex
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("length", [5, 2 * BLOCK, 3 * BLOCK - 40])
def test_blocks_are_those_that_pytorch_finds_in_the_mask(length, padded, causal):
    from torch.nn.attention.flex_attention import create_block_mask

    padding = None
    if padded:
        padding = torch.zeros(3, length, dtype=torch.bool)
        padding[0, -length // 2 :] = True
        padding[1, :3] = True
    found = visible_blocks(length, causal, padding, torch.device("cpu"))
    rows = 3 if padded else 1
    want = create_block_mask(
        found.mask_mod, rows, 1, length, length, device="cpu", BLOCK_SIZE=BLOCK
    )
    assert found.shape == want.shape
    assert torch.equal(found.to_dense(), want.to_dense())
    for names in (("kv_num_blocks", "kv_indices"), ("full_kv_num_blocks", "full_kv_indices")):
        (number, order), (numbers, orders) = (
            [getattr(mask, name) for name in names] for mask in (found, want)
        )
        assert torch.equal(number, numbers)
        places = torch.arange(order.size(-1)).expand_as(order)
        used = places < number.unsqueeze(-1)
        assert torch.equal(order[used], orders[used])


@needs_flex
@torch.no_grad()
def test_without_a_gpu_the_bias_is_dense():
    outputs = [model(*TEXT)[0] for model in pair_of_models("t5")]
    assert torch.equal(*outputs)


@pytest.mark.gpu
@needs_flex
@pytest.mark.parametrize("name", ["rotary+t5", "alibi", "kerple", "sandwich"])
def test_on_a_gpu_the_kernel_is_as_right_as_others(name):
    name, bounds = f"flex:{name}", {torch.float16: 0.01, torch.bfloat16: 0.08}
    test_gpu.test_logits_and_gradients_are_those_of_the_cpu(name)
    test_gpu.test_cached_decoding_with_reordered_beams_equals_the_full_forward(
        name, torch.float32, 1e-5
    )
    for dtype, bound in bounds.items():
        test_gpu.test_half_precision_is_near_float32(name, dtype, bound)
        test_gpu.test_cached_decoding_with_reordered_beams_equals_the_full_forward(
            name, dtype, bound
        )
