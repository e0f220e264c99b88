"""Linear attention whose backward pass computes features again: the gradients of autograd."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from support.linear_layers import (
    PADDINGS,
    B,
    D,
    H,
    T,
    apply,
    cut,
    either_direction,
    every_rotation,
    layer_of,
)

from fairseq_posenc.attention.linear import layer as linear
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.prefix_sums import KeySums
from fairseq_posenc.attention.linear.recomputed import Recomputed


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


def compare(layer, x, causal, padding, wanted, recomputed, monkeypatch):
    """One segment that autograd keeps, and segments of two chunks."""
    want = gradients(layer, x, causal, padding, wanted)
    assert not recomputed
    # dropout draws for all tokens at once, so it is the same
    cut(monkeypatch, layer, 2, 1)
    got = gradients(layer, x, causal, padding, wanted)
    # a feature map with parameters leaves them to autograd
    assert len(recomputed) == (not list(layer.feature_map.parameters()))
    for one, other in zip(got, want):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@every_rotation
@either_direction
def test_gradients_with_padding_and_dropout(kernel, rotary, causal, recomputed, monkeypatch):
    layer, x = layer_of(kernel, rotary), torch.randn(B, T, H * D, requires_grad=True)
    wanted = [x, *layer.parameters()]
    compare(layer, x, causal, PADDINGS["left"], wanted, recomputed, monkeypatch)


@either_direction
@pytest.mark.parametrize("trained", ["q_proj", "k_proj", "v_proj", "feature_map"])
def test_gradients_of_a_part_of_the_parameters(trained, causal, recomputed, monkeypatch):
    """The others are frozen; and a feature map may have parameters of its own."""
    layer, x = layer_of("elu", "features"), torch.randn(B, T, H * D)
    if trained == "feature_map":
        layer.feature_map = Gained()
    wanted = list(layer.requires_grad_(False).get_submodule(trained).requires_grad_().parameters())
    compare(layer, x, causal, None, wanted, recomputed, monkeypatch)


@either_direction
def test_a_second_backward_pass_through_the_same_graph(causal, monkeypatch):
    layer, x = layer_of("favor"), torch.randn(B, T, H * D, requires_grad=True)
    cut(monkeypatch, layer, 2, 1)
    out = apply(layer, x, causal).sum()
    first = torch.autograd.grad(out, x, retain_graph=True)
    assert torch.equal(*first, *torch.autograd.grad(out, x))


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


@torch.no_grad()
def test_nothing_is_kept_where_no_gradient_is_wanted(recomputed, monkeypatch):
    layer = layer_of("favor")
    monkeypatch.setattr(linear, "SEGMENT", 1)
    monkeypatch.setattr(linear, "KEPT", 0)
    apply(layer, torch.randn(B, T, H * D))
    assert not recomputed
