"""--share-layers: one set of parameters for all layers, with the numbers of equal layers."""

import pytest
import torch
from support.helpers import PAD, decode_in_steps, sentences, tiny

SOURCE, TARGET = sentences(3, 7), sentences(3, 9, seed=1)
SOURCE[0, :2] = PAD
NAMES = ["rotary", "shaw_values:tupe+shaw", "gated:rotary", "favor:rotary", "ffn_swiglu:t5"]


def equal_layers(name, others):
    """A model whose layers have parameters of their own, equal to those that *others* share."""
    plain = tiny(name)
    plain.load_state_dict(others.state_dict())
    return plain


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_the_sums_of_those_of_equal_layers(name):
    shared = tiny(name, "--share-layers", "all").train()
    plain = equal_layers(name, shared).train()
    for model in (shared, plain):
        model(SOURCE, None, TARGET)[0].pow(2).mean().backward()
    for side in ("encoder", "decoder"):
        first, *rest = (dict(x.named_parameters()) for x in getattr(shared, side).layers)
        layers = [dict(x.named_parameters()) for x in getattr(plain, side).layers]
        for key, parameter in first.items():
            assert all(other[key] is parameter for other in rest), key
            total = sum(layer[key].grad for layer in layers)
            torch.testing.assert_close(parameter.grad, total, atol=1e-6, rtol=1e-4, msg=key)


@pytest.mark.parametrize("value, attention", [("attention", True), ("feed_forward", False)])
def test_a_part_of_a_layer_is_shared(value, attention):
    shared = tiny("rotary", "--share-layers", value)
    for side in ("encoder", "decoder"):
        first, second = (dict(x.named_parameters()) for x in getattr(shared, side).layers)
        for key in first:
            assert (first[key] is second[key]) == (("attn" in key) == attention), key


@torch.no_grad()
def test_cached_decoding_equals_the_full_forward():
    """Layers share parameters, and not their caches."""
    model = tiny("rotary", "--share-layers", "all")
    got = decode_in_steps(model, SOURCE, TARGET, [1] * 9)
    torch.testing.assert_close(got, model(SOURCE, None, TARGET)[0], atol=1e-5, rtol=0)
