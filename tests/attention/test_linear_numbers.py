"""Linear attention in numbers: large, small or narrow ones, memory, and recomputed gradients."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from support.helpers import through_a_cache
from support.linear_layers import (
    PADDINGS,
    B,
    D,
    H,
    T,
    apply,
    attend,
    cut,
    either_direction,
    every_kernel,
    every_rotation,
    layer_of,
)
from support.parts import attended_alone, kept, kernel_of

from fairseq_posenc.attention.cache import STATE
from fairseq_posenc.attention.linear import layer as linear
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.prefix_sums import KeySums, narrow
from fairseq_posenc.attention.linear.segments import Recomputed
from fairseq_posenc.basics.versions import HAS_SDPA

pytestmark = pytest.mark.properties

EVEN = torch.tensor([1.0, 0.0, 1.0, 0.0]).view(1, 1, 4, 1)


def turn_odd(x):
    """Rotation the two features of the second and of the fourth token by a right angle."""
    return x * EVEN + torch.stack((-x[..., 1], x[..., 0]), dim=-1) * (1 - EVEN)


class TestNumbers:
    @either_direction
    def test_features_that_cancel_when_rotated(self, causal):
        """A numerator of exactly 0 over a denominator that is not."""
        q = k = torch.tensor([1.0, 0.0]).expand(1, 1, 4, 2).clone().requires_grad_()
        v = torch.randn(1, 1, 4, D) * EVEN
        out = attend(q, k, v, causal, turn=turn_odd)
        assert torch.equal(out[:, :, 1::2], torch.zeros(1, 1, 2, D))
        assert (out[:, :, ::2] != 0).all()
        out.sum().backward()
        assert torch.isfinite(q.grad).all()
        # Eq. 11 over a denominator of 0: large, but a number in every precision
        apart = torch.tensor([0.0, 1.0]).expand(1, 1, 4, 2)
        out = attend(q.detach(), apart, torch.ones(1, 1, 4, D) * EVEN, causal, turn=turn_odd)
        assert (out[:, :, 1::2] >= 1e9).all()
        assert torch.isfinite(out).all() and torch.isfinite(narrow(out, torch.half)).all()

    @every_rotation
    @either_direction
    def test_products_in_bfloat16(self, kernel, rotary, causal, monkeypatch):
        """As on a GPU: errors are those of single products, whatever the number of keys."""
        layer = layer_of(kernel, rotary).double()
        x = torch.randn(B, 300, H * D, dtype=torch.float64, requires_grad=True)
        weights = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view_as(x)
        found = []
        for dtype in torch.float64, torch.bfloat16:
            monkeypatch.setattr(linear, "feature_dtype", lambda _, dtype=dtype: dtype)
            out = apply(layer, x, causal)
            found.append([out, *torch.autograd.grad(out, [x], weights)])
        for want, got, error in zip(*found, (0.006, 0.02)):  # 0.004 is the precision of bfloat16
            assert 0 < (got - want).norm() < error * want.norm()

    @torch.no_grad()
    def test_a_cache_of_products_in_bfloat16_has_sums_in_float32(self, monkeypatch):
        monkeypatch.setattr(linear, "feature_dtype", lambda _: torch.bfloat16)
        layer, x = layer_of("favor", causal=True), torch.randn(B, 40, H * D)
        got, state = through_a_cache(layer, x, [9, 1, 20, 1, 9])
        torch.testing.assert_close(got, apply(layer, x, True), atol=0.02, rtol=0.02)
        saved = layer.get_incremental_state(state, STATE)
        assert saved["prev_products"].dtype is saved["prev_sums"].dtype is torch.float32


class TestMemory:
    @every_kernel
    @either_direction
    def test_a_layer_keeps_no_more_than_fused_softmax_attention(self, kernel, causal, monkeypatch):
        if not HAS_SDPA:
            pytest.skip("this PyTorch has no fused attention")
        x, found = torch.randn(B, 512, H * D, requires_grad=True), []
        softmax, linear = kernel_of("softmax", "none", H, D), layer_of(kernel, "none")
        cut(monkeypatch, linear, 64, 2)
        for layer in softmax, linear:
            run = lambda layer=layer: attended_alone(layer, x, causal)  # noqa: E731
            found.append(kept(run, *layer.parameters(), *layer.buffers()))
        assert found[1] <= found[0]


class Gained(FeatureMap):
    """Features with a parameter: elu(gain · x) + 1."""

    def __init__(self):
        super().__init__(D, None, "encoder")
        self.gain = torch.nn.Parameter(torch.linspace(0.5, 1.5, D))

    def queries(self, q, positions=None):
        return F.elu(q * self.gain) + 1

    def keys(self, k, stabiliser=None, positions=None):
        return self.queries(k)


def gradients(layer, x, causal, padding, wanted):
    """The output and the gradients of *wanted*, with dropout."""
    torch.manual_seed(3)
    layer.train()
    layer.dropout_module.p = 0.3
    out = apply(layer, x, causal, padding)
    weights = torch.linspace(-1, 1, out.numel()).view_as(out)
    return out, *torch.autograd.grad(out, wanted, weights)


@pytest.fixture
def recomputed(monkeypatch):
    """The outputs of :class:`Recomputed` so far."""
    found, plain = [], Recomputed.apply
    monkeypatch.setattr(Recomputed, "apply", lambda *args: found.append(plain(*args)) or found[-1])
    return found


@either_direction
@pytest.mark.parametrize("trained", ["", "q_proj", "k_proj", "v_proj", "feature_map"])
def test_gradients_with_padding_and_dropout(trained, causal, recomputed, monkeypatch):
    """Of all or of some parameters: one segment that autograd keeps, and segments of two chunks.

    A feature map with parameters leaves them to autograd.
    """
    layer, x = layer_of("elu", "features"), torch.randn(B, T, H * D)
    if trained == "feature_map":
        layer.feature_map = Gained()
    if trained:
        layer.requires_grad_(False).get_submodule(trained).requires_grad_()
    else:
        x.requires_grad_()
    wanted = [each for each in (x, *layer.parameters()) if each.requires_grad]
    want = gradients(layer, x, causal, PADDINGS["left"], wanted)
    assert not recomputed
    # dropout draws for all tokens at once, so it is the same
    cut(monkeypatch, layer, 2, 1)
    got = gradients(layer, x, causal, PADDINGS["left"], wanted)
    assert len(recomputed) == (trained != "feature_map")
    for one, other in zip(got, want):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_causal_states_are_kept_for_groups_of_segments(monkeypatch):
    """The states before all 36 segments would be as large as the queries."""
    layer, x = layer_of("elu"), torch.randn(B, 72, H * D, requires_grad=True)
    cut(monkeypatch, layer, 2, 1)
    out, made, most = apply(layer, x, True), [], []
    plus = KeySums.plus

    def note(*states):
        made.append(weakref.ref((found := plus(*states)).products))
        most.append(sum(each() is not None for each in made))
        return found

    monkeypatch.setattr(KeySums, "plus", note)
    out.sum().backward()
    assert len(made) >= 34 and max(most) <= 2 * 6
