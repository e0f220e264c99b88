"""Linear attention against float64 loops and performer-pytorch; its gradients and cache."""

import math

import pytest
import torch
from support.formulas import rotation_matrix
from support.helpers import through_a_cache
from support.linear_layers import (
    PADDINGS,
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
    feature_map,
    layer_of,
)

pytestmark = pytest.mark.formulas


def plain_features(kernel, m, q, k, projection, seen, causal):
    """φ of query *m* and ϕ of the keys *seen*, in float64, after the papers' formulas.

    Args: q (D,), k {n: (D,)}, seen (list of n).
    """
    if kernel == "cosformer":  # one feature, which holds all of Eq. 8

        def weight(n):
            return q.relu() @ k[n].relu() * math.cos(math.pi / 2 * (m - n) / 10000)

        return torch.ones(1).double(), {n: weight(n).view(1) for n in seen}
    if kernel == "elu":

        def phi(x):
            return torch.where(x > 0, x + 1, x.exp())

        return phi(q), {n: phi(k[n]) for n in seen}
    if kernel == "one_denominator":
        return q.softmax(0), {n: k[n].exp() for n in seen}
    if kernel == "softmax_features":
        total = sum(k[n].exp() for n in seen)
        return q.softmax(0) / total, {n: k[n].exp() for n in seen}
    scaled, root = len(q) ** -0.25, len(projection) ** -0.5
    if kernel == "favor_relu":

        def phi(x):
            return (projection @ x * scaled).clamp(min=0) + 1e-3

        return phi(q), {n: phi(k[n]) for n in seen}

    def phi(x, top):
        x = x * scaled
        return root * ((projection @ x - x @ x / 2 - top).exp() + 1e-4)

    top = 0.0 if causal else max(float((projection @ k[n] * scaled).max()) for n in seen)
    return phi(q, float((projection @ q * scaled).max())), {n: phi(k[n], top) for n in seen}


def test_half_of_the_features_of_the_hyperbolic_kernel_have_the_opposite_exponents():
    """Choromanski et al. 2020; the test of the whole layer takes this for granted."""
    projection = feature_map("favor", favor_kernel="hyperbolic").projection
    assert len(projection) == M and torch.equal(projection[M // 2 :], -projection[: M // 2])


def by_hand(layer, kernel, rotary, x, causal, padding):
    """RoFormer Eq. 10 and 11 in float64, with loops over sentences, heads, queries and keys."""

    def heads(proj):  # (B, T, C) -> (B, H, T, D)
        out = x.double() @ proj.weight.double().t() + proj.bias.double()
        return out.view(*x.shape[:2], layer.num_heads, layer.head_dim).transpose(1, 2)

    q, k, v = heads(layer.q_proj), heads(layer.k_proj), heads(layer.v_proj)
    projection = getattr(layer.feature_map, "projection", torch.zeros(D, D)).double()
    size = len(projection)
    turn = [rotation_matrix(m, size if rotary == "features" else D) for m in range(x.size(1))]
    if rotary == "inputs":
        # positions count from the first real token
        first = torch.zeros(len(x)).long() if padding is None else padding.int().argmin(dim=1)
        at = (torch.arange(x.size(1)) - first.unsqueeze(1)).clamp(min=0)
        q, k = (torch.einsum("btij,bhtj->bhti", torch.stack(turn)[at], t) for t in (q, k))

    def turned(n, features):
        return turn[n] @ features if rotary == "features" else features

    out = torch.zeros_like(v)
    for b in range(v.size(0)):
        for h in range(v.size(1)):
            for m in range(v.size(2)):
                seen = [n for n in range(m + 1 if causal else v.size(2))
                        if padding is None or not padding[b, n]]  # fmt: skip
                if not seen:
                    continue
                keys = {n: k[b, h, n] for n in seen}
                phi, keys = plain_features(kernel, m, q[b, h, m], keys, projection, seen, causal)
                total = sum(phi @ keys[n] for n in seen).clamp(min=1e-9)  # ReLU may give zeros
                for n in seen:
                    weight = turned(m, phi) @ turned(n, keys[n]) / total
                    out[b, h, m] += weight * v[b, h, n]
    out = out.transpose(1, 2).flatten(2)
    return out @ layer.out_proj.weight.double().t() + layer.out_proj.bias.double()


@every_rotation
@either_direction
@pytest.mark.parametrize("padding", PADDINGS)
@torch.no_grad()
def test_the_whole_layer_is_equation_10_or_11(kernel, rotary, causal, padding, monkeypatch):
    layer, x = layer_of(kernel, rotary), torch.randn(B, T, H * D)
    mask = PADDINGS[padding]
    want = by_hand(layer, kernel, rotary, x, causal, mask)
    real = torch.ones(B, T, dtype=torch.bool) if mask is None else ~mask
    for chunk, chunks in (64, 1), (3, 3), (2, 2), (1, 1):  # T is 7: the last may be shorter
        cut(monkeypatch, layer, chunk, chunks)
        got = apply(layer, x, causal, mask)
        torch.testing.assert_close(got.double()[real], want[real], atol=2e-5, rtol=1e-4)


@either_direction
def test_a_query_that_sees_nothing_gets_zeros(causal):
    q, k, v = torch.rand(B, H, T, M), torch.zeros(B, H, T, M), torch.randn(B, H, T, D)
    for per_feature in (False, True):
        out = attend(q, k, v, causal, per_feature=per_feature)
        assert torch.equal(out, torch.zeros_like(v))


class TestGradients:
    @every_rotation
    @either_direction
    def test_numerical(self, kernel, rotary, causal, monkeypatch):
        layer = layer_of(kernel, rotary, heads=2, head_dim=4, favor_features=6).double()
        cut(monkeypatch, layer, 2, 1)
        x = torch.randn(2, 5, 8, dtype=torch.double, requires_grad=True)
        padding = torch.tensor([[True, True, False, False, False], [False] * 4 + [True]])
        parameters = tuple(layer.parameters())
        assert torch.autograd.gradcheck(
            lambda x, *_: apply(layer, x, causal, padding), (x, *parameters), fast_mode=True
        )

    @every_kernel
    @either_direction
    def test_finite_for_sentences_of_padding_and_large_inputs(self, kernel, causal):
        for scale in (1.0, 1e3, 6e4):
            layer = layer_of(kernel)
            x = (torch.randn(B, T, H * D) * scale).requires_grad_()
            out = apply(layer, x, causal, PADDINGS["all"])
            assert torch.isfinite(out).all()
            out.square().clamp(max=1e6).mean().backward()
            assert torch.isfinite(x.grad).all(), scale


class TestPerformerPytorch:
    """Outputs of performer-pytorch 1.1.4, with its projections and epsilons."""

    @pytest.mark.parametrize(
        "name", ["performer_relu", "performer_relu_causal", "performer_softmax"]
    )
    def test_features_and_outputs(self, golden, name):
        ref = golden(name)
        q, k, v = (ref["inputs"][key] for key in "qkv")
        causal, config = "causal" in name, ref["config"]
        kernel = "favor_relu" if "relu" in name else "favor"
        epsilon = config["generalized_kernel_eps" if "relu" in name else "softmax_kernel_eps"]
        features = config["nb_features"]
        favor = feature_map(kernel, q.size(-1), favor_features=features, favor_epsilon=epsilon)
        favor.load_state_dict({"projection": ref["state_dict"]["projection_matrix"]})
        stabiliser = None if causal else favor.stabiliser(k.transpose(1, 2), None, 5)
        q, k = favor.queries(q), favor.keys(k, stabiliser)
        torch.testing.assert_close(q, ref["outputs"]["q_feat"], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(k, ref["outputs"]["k_feat"], atol=1e-5, rtol=1e-5)
        out = attend(q, k, v, causal, config["causal_eps"])
        torch.testing.assert_close(out, ref["outputs"]["out"], atol=1e-5, rtol=1e-5)


class TestCache:
    @every_rotation
    @torch.no_grad()
    def test_steps_of_any_size_give_the_full_forward(self, kernel, rotary, monkeypatch):
        layer, x = layer_of(kernel, rotary, causal=True), torch.randn(B, 9, H * D)
        cut(monkeypatch, layer, 2, 2)
        padding = torch.zeros(B, 9, dtype=torch.bool)
        padding[0, :2] = True
        full = apply(layer, x, True, padding)
        got, _ = through_a_cache(layer, x, [4, 1, 1, 3], padding)
        torch.testing.assert_close(got, full, atol=1e-6, rtol=1e-5)

    @every_kernel
    @torch.no_grad()
    def test_its_size_does_not_grow(self, kernel):
        layer, x, sizes = layer_of(kernel, causal=True), torch.randn(B, 50, H * D), set()
        for length in (1, 2, 50):
            _, state = through_a_cache(layer, x, [1] * length)
            (saved,) = state.values()
            assert all(value.size(0) == B for value in saved.values())  # beam search reorders rows
            sizes.add(sum(value.numel() for value in saved.values()))
        features = layer.feature_map.size(D, layer.encoding.options)
        assert sizes == {B * H * features * (D + 1)}
