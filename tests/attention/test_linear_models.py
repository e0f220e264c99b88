"""The random features of FAVOR+, in models and by themselves."""

from argparse import Namespace

import pytest
import torch
from support.helpers import tiny
from support.linear_layers import D, attend, feature_map, projections

from fairseq_posenc.attention.linear.favor import Favor
from fairseq_posenc.attention.linear.random_features import orthogonal_rows
from fairseq_posenc.basics.errors import UsageError
from tests.checkpoints.test_warm_start import load

pytestmark = pytest.mark.properties


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
        """The larger scales have features below the usual least denominator, or 0 in float32."""
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
        """tests/commands/test_linear.py resumes trainings that redraw."""
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
    """With a stabiliser from visible keys, the exponent of a hidden one has no bound of its own."""
    favor = feature_map("favor", favor_epsilon=0.0)
    k = torch.cat((torch.randn(1, 1, 3, D) * 40, torch.zeros(1, 1, 1, D)), dim=2).requires_grad_()
    hidden = torch.tensor([False, False, False, True]).view(1, 4, 1, 1)
    stabiliser = favor.stabiliser(k.transpose(1, 2), hidden, 4)
    found = favor.keys(k, stabiliser).masked_fill(hidden.transpose(1, 2), 0.0)
    found.sum().backward()
    assert found.isfinite().all() and k.grad.isfinite().all()
