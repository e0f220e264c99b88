"""Linear attention: numerical limits, low precision, memory, gradients, random features."""

import weakref
from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F
from support.helpers import through_a_cache, tiny
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
    feature_map,
    layer_of,
    projections,
)
from support.parts import attended_alone, kept, kernel_of

from fairseq_posenc.attention.cache import STATE
from fairseq_posenc.attention.linear import layer as linear
from fairseq_posenc.attention.linear.favor import Favor
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.prefix_sums import KeySums, narrow
from fairseq_posenc.attention.linear.random_features import orthogonal_rows
from fairseq_posenc.attention.linear.segments import Recomputed
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.versions import HAS_SDPA, TORCH_VERSION
from tests.checkpoints.test_warm_start import load

pytestmark = pytest.mark.properties

EVEN = torch.tensor([1.0, 0.0, 1.0, 0.0]).view(1, 1, 4, 1)


def turn_odd(x):
    """Rotate the two features of the second token and of the fourth token by 90 degrees."""
    return x * EVEN + torch.stack((-x[..., 1], x[..., 0]), dim=-1) * (1 - EVEN)


class TestNumbers:
    @either_direction
    def test_features_that_cancel_when_rotated(self, causal):
        """The numerator is exactly 0, and the denominator is not."""
        q = k = torch.tensor([1.0, 0.0]).expand(1, 1, 4, 2).clone().requires_grad_()
        v = torch.randn(1, 1, 4, D) * EVEN
        out = attend(q, k, v, causal, turn=turn_odd)
        assert torch.equal(out[:, :, 1::2], torch.zeros(1, 1, 2, D))
        assert (out[:, :, ::2] != 0).all()
        out.sum().backward()
        assert torch.isfinite(q.grad).all()
        # Eq. 11 with a denominator of 0: the output is large, but finite in every precision
        apart = torch.tensor([0.0, 1.0]).expand(1, 1, 4, 2)
        out = attend(q.detach(), apart, torch.ones(1, 1, 4, D) * EVEN, causal, turn=turn_odd)
        assert (out[:, :, 1::2] >= 1e9).all()
        assert torch.isfinite(out).all() and torch.isfinite(narrow(out, torch.half)).all()

    @pytest.mark.skipif(TORCH_VERSION < (2,), reason="PyTorch 1 sums bfloat16 in bfloat16 on a CPU")
    @every_rotation
    @either_direction
    def test_products_in_bfloat16(self, kernel, rotary, causal, monkeypatch):
        """Products are in bfloat16, as on a GPU; errors do not grow with the number of keys."""
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
    """A list that collects the outputs of :class:`Recomputed`."""
    found, plain = [], Recomputed.apply
    monkeypatch.setattr(Recomputed, "apply", lambda *args: found.append(plain(*args)) or found[-1])
    return found


@either_direction
@pytest.mark.parametrize("trained", ["", "q_proj", "k_proj", "v_proj", "feature_map"])
def test_gradients_with_padding_and_dropout(trained, causal, recomputed, monkeypatch):
    """Recomputed segments give the same gradients as one segment that autograd keeps.

    If the feature map has parameters, autograd keeps all segments.
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
    # dropout is drawn for all tokens at once, so it does not change
    cut(monkeypatch, layer, 2, 1)
    got = gradients(layer, x, causal, PADDINGS["left"], wanted)
    assert len(recomputed) == (trained != "feature_map")
    for one, other in zip(got, want):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_causal_states_are_kept_for_groups_of_segments(monkeypatch):
    """Keeping the states before all 36 segments would take as much memory as the queries."""
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


# --- the random features of FAVOR+


class TestRandomFeatures:
    def test_every_layer_has_its_own_and_every_process_the_same(self):
        first = projections(tiny("favor:rotary").state_dict())
        torch.manual_seed(5)
        second = projections(tiny("favor:rotary").state_dict())
        other = projections(tiny("favor:rotary", "--favor-seed", "2").state_dict())
        assert len(first) == 4 and first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
        assert not any(torch.equal(first[key], other[key]) for key in first)
        assert len({value.numpy().tobytes() for value in first.values()}) == 4

    def test_building_a_model_leaves_pytorchs_random_numbers_as_softmax_does(self):
        states = []
        for attention in ("softmax", "favor"):
            torch.manual_seed(3)
            tiny("rotary", "--attention", attention)
            states.append(torch.get_rng_state())
        assert torch.equal(*states)

    def test_a_softmax_model_continues_as_a_performer_and_back(self, caplog):
        softmax, performer = tiny("rotary"), tiny("favor:rotary")
        fresh = {k: v.clone() for k, v in projections(performer.state_dict()).items()}
        messages = load(performer, softmax.state_dict(), caplog)
        assert sum("feature_map.projection" in m and "untrained" in m for m in messages) == 4
        assert all(torch.equal(fresh[k], v) for k, v in projections(performer.state_dict()).items())
        caplog.clear()
        messages = load(tiny("rotary"), performer.state_dict(), caplog)
        assert sum("left out" in m for m in messages) == 4


class TestProjections:
    def test_rows_are_orthogonal_in_blocks_and_as_long_as_gaussian_vectors(self):
        rows = orthogonal_rows(40, 16, "a")
        for block in rows.split(16):
            products = block @ block.t()
            off = products - products.diagonal().diag()
            assert off.abs().max() < 1e-9
        many = orthogonal_rows(4096, 16, "b")
        squares = many.square().sum(1)
        assert squares.mean() == pytest.approx(16, rel=0.02)
        assert squares.var() == pytest.approx(32, rel=0.15)

    @pytest.mark.parametrize(
        "scale, causal", [(0.5, False), (8.0, False), (0.5, True), (5.0, True)]
    )
    def test_without_epsilon_long_queries_and_keys_do_not_vanish(self, scale, causal):
        """At the larger scales, features are 0 or below the usual lower bound of denominators."""
        favor = feature_map("favor", favor_epsilon=0.0)
        q, k, v = (x * torch.randn(1, 2, 5, D) for x in (scale, scale, 1))
        omega = favor.projection.double() * D**-0.25
        phi = [
            x.double() @ omega.t() - x.double().square().sum(-1, keepdim=True) / (2 * D**0.5)
            for x in (q, k)
        ]
        logits = torch.logsumexp(phi[0].unsqueeze(3) + phi[1].unsqueeze(2), dim=-1)
        hidden = torch.ones(5, 5, dtype=torch.bool).triu(1) & causal
        want = logits.masked_fill(hidden, -torch.inf).softmax(dim=-1) @ v.double()
        q.requires_grad_(), k.requires_grad_()
        keys = favor.keys(k, None if causal else favor.stabiliser(k.transpose(1, 2), None, 5))
        got = attend(favor.queries(q), keys, v, causal, epsilon=1e-30)
        torch.testing.assert_close(got.double(), want, atol=1e-4, rtol=1e-3)
        got.square().sum().backward()
        assert all(torch.isfinite(x.grad).all() and x.grad.abs().max() > 0 for x in (q, k))

    def test_another_number_of_them_is_refused_by_name(self):
        saved = feature_map("favor", favor_features=6).state_dict()
        with pytest.raises(UsageError, match="--favor-features 8: the checkpoint has 6"):
            feature_map("favor", favor_features=8).load_state_dict(saved)

    def test_half_leaves_the_projection_alone(self):
        favor = feature_map("favor")
        exact = favor.projection.clone()
        for change in (favor.half, favor.bfloat16, favor.double, favor.float):
            change()
            assert favor.projection.dtype is torch.float32
            assert torch.equal(favor.projection, exact)

    def test_they_are_redrawn_on_schedule(self):
        """Resumed trainings that redraw are tested in tests/commands/test_distributed.py."""
        favor, seen = feature_map("favor", favor_redraw=10, favor_redraw_until=25), {}
        for update in range(60):
            favor.set_num_updates(update)
            favor.set_num_updates(update)  # fairseq calls it more than once
            seen.setdefault(favor.projection.numpy().tobytes(), []).append(update)
        assert sorted(seen.values()) == [list(range(10)), list(range(10, 20)), list(range(20, 60))]

    def test_their_number_is_d_ln_d_or_what_the_flag_says(self):
        sizes = [Favor.size(d, Namespace(favor_features=None)) for d in (1, 2, 8, 64)]
        assert sizes == [2, 2, 16, 266]
        assert Favor.size(64, Namespace(favor_features=100)) == 100


def test_hidden_keys_of_large_queries_leave_gradients_finite():
    """A stabiliser from visible keys does not bound the exponent of a hidden key."""
    favor = feature_map("favor", favor_epsilon=0.0)
    k = torch.cat((torch.randn(1, 1, 3, D) * 40, torch.zeros(1, 1, 1, D)), dim=2).requires_grad_()
    hidden = torch.tensor([False, False, False, True]).view(1, 4, 1, 1)
    stabiliser = favor.stabiliser(k.transpose(1, 2), hidden, 4)
    found = favor.keys(k, stabiliser).masked_fill(hidden.transpose(1, 2), 0.0)
    found.sum().backward()
    assert found.isfinite().all() and k.grad.isfinite().all()
