"""On a GPU: the same results as on the CPU, half precision, the cache, and waits of the host."""

import contextlib
import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from fairseq import utils
from support.helpers import (
    EVERY_ENCODING,
    OTHER_LAYERS,
    PAD,
    last_token,
    padded_batch,
    sentences,
    tiny,
    tiny_in_blocks,
)
from torch.overrides import TorchFunctionMode

from fairseq_posenc.attention.cache import BEAM
from fused import AttentionCall, fused_kernel

pytestmark = pytest.mark.gpu
every_layer = pytest.mark.parametrize("name", EVERY_ENCODING + OTHER_LAYERS)
#: bounds of the relative error of each gradient; a gradient of zeros would have an error of 1
SLOPE_BOUNDS = {torch.float32: 0.01, torch.float16: 0.3, torch.bfloat16: 0.6}
# without the Reformer, since rounding moves tokens into other buckets of its hash
NO_HASH = [name for name in EVERY_ENCODING + OTHER_LAYERS if "reformer" not in name]


def batch(device="cuda"):
    """Sources and targets with padding, of odd lengths."""
    return [tokens.to(device) for tokens in padded_batch()]


def real(target):
    return target.ne(PAD)


def logits_and_gradients(model, source, target):
    """Logits (N, V) of the real tokens and each parameter's gradient, on the CPU."""
    model.zero_grad()
    logits = model(source, None, target)[0].float()[real(target)]
    weights = torch.linspace(-1, 1, logits.numel(), device=logits.device).view_as(logits)
    (logits * weights).sum().backward()
    given = {k: p.grad for k, p in model.named_parameters() if p.grad is not None}
    return logits.detach().cpu(), {k: g.float().cpu() for k, g in given.items()}


def error(got, want):
    """The relative error: the norm of the difference, divided by the norm of *want*."""
    return float((got.double() - want.double()).norm() / want.double().norm().clamp(min=1e-6))


def slope_error(found, want):
    """The largest relative error of a parameter's gradient.

    For a gradient that is zero up to rounding, the divisor is 1/1,000 of the largest norm.
    """
    assert found.keys() == want.keys() and all(g.isfinite().all() for g in found.values())
    norms = {k: float(g.norm()) for k, g in want.items()}
    least = max(norms.values()) / 1000
    return max(float((found[k] - g).norm()) / max(norms[k], least) for k, g in want.items())


@every_layer
def test_logits_and_gradients_are_those_of_the_cpu(name):
    model = tiny(name)
    want, slopes = logits_and_gradients(model, *batch("cpu"))
    got, found = logits_and_gradients(copy.deepcopy(model).cuda(), *batch())
    assert error(got, want) < 1e-5
    assert slope_error(found, slopes) < SLOPE_BOUNDS[torch.float32]


@pytest.mark.parametrize("name", NO_HASH)
@pytest.mark.parametrize("dtype, bound", [(torch.float16, 0.01), (torch.bfloat16, 0.08)])
def test_half_precision_is_near_float32(name, dtype, bound):
    """The float32 model has weights that were rounded, so only the arithmetic differs."""
    rounded = tiny(name).cuda().to(dtype)
    want, slopes = logits_and_gradients(copy.deepcopy(rounded).float(), *batch())
    got, found = logits_and_gradients(rounded, *batch())
    assert error(got, want) < bound and slope_error(found, slopes) < SLOPE_BOUNDS[dtype]


@pytest.mark.parametrize("name", NO_HASH)
@pytest.mark.parametrize(
    "dtype, bound", [(torch.float32, 1e-5), (torch.float16, 0.01), (torch.bfloat16, 0.08)]
)
@torch.no_grad()
def test_cached_decoding_with_reordered_beams_equals_the_full_forward(name, dtype, bound):
    model, beam = tiny(name).cuda().to(dtype), 2
    source = batch()[0].repeat_interleave(beam, dim=0)
    target = sentences(3 * beam, 9, seed=1).cuda()
    model.make_generation_fast_(need_attn=False)
    encoder_out, state = model.encoder(source, None), {BEAM: beam}
    order = torch.tensor([1, 0, 2, 3, 4, 4], device="cuda")
    for length in range(1, target.size(1) + 1):
        prefix = target[:, :length]
        got, _ = model.decoder(prefix, encoder_out=encoder_out, incremental_state=state)
        full, _ = model.decoder(prefix, encoder_out=encoder_out)
        assert error(got[:, -1], full[:, -1]) < bound
        model.decoder.reorder_incremental_state_scripting(state, order)
        target = target[order]


@contextlib.contextmanager
def waits():
    """Yields a list; at the end it has PyTorch's warnings of operations that make the host wait."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        found = []
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
            found += [w for w in caught if "synchronizing CUDA operation" in str(w.message)]


@every_layer
def test_one_wait_a_step_and_none_a_token(name):
    model = tiny_in_blocks(name).cuda().half().train()
    source, target = batch()
    logits_and_gradients(model, source, target)  # computes constants once
    model.zero_grad()
    with waits() as step:
        model(source, None, target)[0].float().sum().backward()
    decode = last_token(model, source, target)
    with waits() as token:
        decode()
    assert len(step) == 1 and not token


#: PyTorch's numbers for the kernels of fused attention
KERNELS = {0: None, 1: "flash", 2: "memory-efficient", 3: "cudnn"}


class Attention(TorchFunctionMode):
    """Notes the predicted kernel of each call of fused attention, and the one PyTorch takes."""

    def __init__(self, capability):
        super().__init__()
        self.capability, self.predicted, self.taken = capability, [], []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is F.scaled_dot_product_attention:
            given = dict(zip(("query", "key", "value", "attn_mask"), args), **(kwargs or {}))
            call = AttentionCall.of(**given)
            self.predicted.append(fused_kernel(call, self.capability).kernel)
            call = [given["query"], given["key"], given["value"], given.get("attn_mask")]
            call += [given.get("dropout_p", 0.0), given.get("is_causal", False)]
            self.taken.append(KERNELS[torch._fused_sdp_choice(*call)])
        return func(*args, **(kwargs or {}))


@every_layer
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_predicted_kernels_are_those_that_pytorch_takes(name, dtype):
    model = tiny_in_blocks(name).cuda().to(dtype).train()
    major, minor = torch.cuda.get_device_capability()
    with Attention(10 * major + minor) as noted:
        logits_and_gradients(model, *batch())
    taken = [p if t == "cudnn" and p else t for p, t in zip(noted.predicted, noted.taken)]
    assert taken == noted.predicted


def test_gradients_on_the_cpu_are_clipped_where_they_are():
    weights = [torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(2))]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    norm = utils.clip_grad_norm_(weights, 1.0)
    assert norm.device.type == "cpu" and float(norm) == pytest.approx(5**0.5)
    assert weights[0].grad.norm() ** 2 + weights[1].grad.norm() ** 2 == pytest.approx(1)
