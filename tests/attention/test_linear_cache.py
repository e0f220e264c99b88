"""Linear attention in steps: its own cache, and no look at later tokens."""

import pytest
import torch
from support.helpers import assert_causal, skip_without_cpu_kernels
from support.linear_layers import (
    B,
    D,
    H,
    M,
    apply,
    cut,
    every_kernel,
    every_rotation,
    in_steps,
    layer_of,
    padding_bias,
    table_of,
)

from fairseq_posenc.attention.linear.prefix_sums import State, attend_causally, empty_state


class TestCache:
    @every_rotation
    @pytest.mark.parametrize("steps", [[1] * 9, [4, 1, 1, 3], [9]])
    @torch.no_grad()
    def test_steps_of_any_size_give_the_full_forward(self, kernel, rotary, steps, monkeypatch):
        layer, x = layer_of(kernel, rotary, causal=True), torch.randn(B, 9, H * D)
        cut(monkeypatch, layer, 2, 2)
        padding = torch.zeros(B, 9, dtype=torch.bool)
        padding[0, :2] = True
        table = table_of(layer, 9)
        full = apply(layer, x, padding_bias(padding), True, table)
        got, _ = in_steps(layer, x, table, steps, padding)
        torch.testing.assert_close(got, full, atol=1e-6, rtol=1e-5)

    @pytest.mark.slow
    @every_kernel
    @torch.no_grad()
    def test_4096_tokens_one_by_one(self, kernel):
        layer = layer_of(kernel, heads=2, causal=True)
        x = torch.randn(1, 4096, 2 * D)
        table = table_of(layer, 4096)
        full = apply(layer, x, None, True, table)
        assert (in_steps(layer, x, table, [1] * 4096)[0] - full).abs().max() <= 1e-4

    @every_kernel
    @torch.no_grad()
    def test_its_size_does_not_grow(self, kernel):
        layer, x, sizes = layer_of(kernel, causal=True), torch.randn(B, 50, H * D), set()
        for length in (1, 2, 50):
            _, state = in_steps(layer, x, table_of(layer, length), [1] * length)
            (saved,) = state.values()
            assert all(value.size(0) == B for value in saved.values())  # beam search reorders rows
            sizes.add(sum(value.numel() for value in saved.values()))
        features = layer.feature_map.size(D, layer.encoding.options)
        assert sizes == {B * H * features * (D + 1)}

    @torch.no_grad()
    def test_it_follows_a_beam(self):
        layer, x = layer_of("elu", causal=True), torch.randn(B, 6, H * D)
        table = table_of(layer, 6)
        order, state = torch.tensor([1, 1, 0]), {}
        layer(x[:, :4], None, True, table[:, :4], incremental_state=state)
        layer.reorder_incremental_state(state, order)
        x = x[order]
        got = layer(x[:, 4:], None, True, table[:, 4:], incremental_state=state)
        torch.testing.assert_close(got, layer(x, None, True, table)[:, 4:])

    @every_kernel
    @pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
    @torch.no_grad()
    def test_half_precision(self, kernel, dtype, tolerance):
        """The same projections, and sums in float32, so that cached is the full forward."""
        skip_without_cpu_kernels(dtype)
        layer, x = layer_of(kernel, causal=True).to(dtype), torch.randn(1, 200, H * D).to(dtype)
        table = table_of(layer, 200)
        full = apply(layer, x, None, True, table)
        got, state = in_steps(layer, x, table, [1] * 200)
        assert {v.dtype for v in next(iter(state.values())).values()} == {torch.float32}
        assert full.dtype is dtype
        assert (got - full).abs().max() <= tolerance


@every_rotation
@torch.no_grad()
def test_no_output_depends_on_a_later_token(kernel, rotary):
    """Bit for bit, with later tokens that dwarf the earlier ones."""
    layer, x = layer_of(kernel, rotary, causal=True), torch.randn(B, 150, H * D)
    table = table_of(layer, 150)
    other = 30 * torch.randn_like(x)
    assert_causal(lambda x: apply(layer, x, None, True, table), x, other, [1, 70, 149])


def test_a_state_carries_on_where_a_sequence_was_cut():
    q, k, v = torch.rand(B, H, 20, M), torch.rand(B, H, 20, M), torch.randn(B, H, 20, D)
    for per_feature in (False, True):
        how = (1e-9, per_feature)
        whole, last = attend_causally(q, k, v, empty_state(v, M), *how)
        first, state = attend_causally(*(x[:, :, :8] for x in (q, k, v)), empty_state(v, M), *how)
        assert isinstance(state, State)
        second, end = attend_causally(*(x[:, :, 8:] for x in (q, k, v)), state, *how)
        torch.testing.assert_close(torch.cat((first, second), 2), whole)
        torch.testing.assert_close(tuple(end), tuple(last))
