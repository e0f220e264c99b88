"""Linear attention where numbers are large, small or narrow, and how much memory it takes."""

import pytest
import torch
from support.helpers import skip_without_cpu_kernels
from support.linear_layers import (
    B,
    D,
    H,
    M,
    T,
    apply,
    attend,
    cut,
    either_direction,
    every_kernel,
    every_rotation,
    in_steps,
    layer_of,
)
from support.parts import attended_alone, kept, kernel_of

from fairseq_posenc.attention.cache import STATE
from fairseq_posenc.attention.linear import layer as linear
from fairseq_posenc.attention.linear import prefix_sums
from fairseq_posenc.attention.linear.prefix_sums import identity, narrow, products_before
from fairseq_posenc.basics.versions import HAS_SDPA

EVEN = torch.tensor([1.0, 0.0, 1.0, 0.0]).view(1, 1, 4, 1)


def turn_odd(x):
    """Rotation the two features of the second and of the fourth token by a right angle."""
    return x * EVEN + torch.stack((-x[..., 1], x[..., 0]), dim=-1) * (1 - EVEN)


class TestNumbers:
    @every_kernel
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    @either_direction
    @torch.no_grad()
    def test_finite_at_10000_tokens(self, kernel, dtype, causal):
        skip_without_cpu_kernels(dtype)
        layer = layer_of(kernel, heads=2).to(dtype)
        x = torch.randn(1, 10000, 2 * D, dtype=dtype)
        out = apply(layer, x, causal)
        assert torch.isfinite(out).all() and out.float().abs().max() > 0

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

    @either_direction
    def test_features_that_do_not_meet_until_they_are_rotated(self, causal):
        """Eq. 11 over a denominator of 0: large, but a number in every precision."""
        q, k = (torch.tensor(x).expand(1, 1, 4, 2) for x in ([1.0, 0.0], [0.0, 1.0]))
        out = attend(q, k, torch.ones(1, 1, 4, D) * EVEN, causal, turn=turn_odd)
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
        got, state = in_steps(layer, x, [9, 1, 20, 1, 9])
        torch.testing.assert_close(got, apply(layer, x, True), atol=0.02, rtol=0.02)
        saved = layer.get_incremental_state(state, STATE)
        assert saved["prev_products"].dtype is saved["prev_sums"].dtype is torch.float32

    def test_a_guard_changes_no_normal_result(self):
        q, k, v = torch.rand(B, H, T, M), torch.rand(B, H, T, M), torch.randn(B, H, T, D)
        got = [attend(q, k, v, True, epsilon) for epsilon in (1e-9, 1e-3)]
        assert torch.equal(*got)

    @torch.no_grad()
    def test_dropout_keeps_the_mean(self, monkeypatch):
        layer, x = layer_of("elu", "none", causal=True).train(), torch.randn(B, T, H * D)
        layer.v_proj.weight.zero_(), layer.v_proj.bias.fill_(1.0)
        layer.out_proj = torch.nn.Identity()
        layer.dropout_module.p = 0.5
        cut(monkeypatch, layer, 2, 1)
        out = [attended_alone(layer, x, True) for _ in range(500)]
        assert torch.stack(out).mean() == pytest.approx(1.0, abs=0.03)
        assert not torch.equal(out[0], out[1])


class TestMemory:
    @staticmethod
    def of_features(length, causal, turned):
        """Bytes kept of attention to given features."""
        q, k = (torch.rand(1, 2, length, 64, requires_grad=True) for _ in range(2))
        v = torch.randn(1, 2, length, 64, requires_grad=True)
        turn = (lambda x: x * 2) if turned else identity
        return kept(lambda: attend(q, k, v, causal, turn=turn))

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

    @either_direction
    @pytest.mark.parametrize("turned", [False, True])
    def test_linear_in_the_length_and_no_outer_product_for_every_token(self, causal, turned):
        short, long = (self.of_features(length, causal, turned) for length in (1024, 4096))
        assert long < 4.2 * short
        outer_products = 4 * 2 * 4096 * 64 * 64  # float32, two heads
        assert long < outer_products / 4

    def test_one_chunk_or_many(self, monkeypatch):
        q, k = torch.rand(B, H, 50, M), torch.rand(B, H, 50, M)
        v, start = torch.randn(B, H, 50, D), torch.randn(B, H, D, M)
        want = None
        for size in (64, 16, 7, 1):
            monkeypatch.setattr(prefix_sums, "CHUNK", size)
            got = products_before(q, k, v, start)
            want = got if want is None else want
            torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-5)
