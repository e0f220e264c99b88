"""Gradients of all parameters against numerical gradients; gradients of shared layers."""

import pytest
import torch
from support.commands import shape
from support.formulas import CONTENT
from support.helpers import FEED_FORWARDS, PAD, parameters_of, sentences, tiny

pytestmark = pytest.mark.formulas

SMALL = shape(1, 8, 8, 2)
#: fairseq's gelu is computed in float32, tanh in float64; two networks have fixed activations
SMOOTH = ["--activation-fn", "tanh"]
OWN_ACTIVATION = ("ffn_swiglu:none", "ffn_geglu:none")
CLIPPED = ("shaw", "deberta")
#: encodings with parameters, or with products of queries and keys
NAMES = [*CONTENT, "learned", "rotary", "xpos", "bert_ad", "t5", "tupe", "kerple", "fire"]
NAMES += ["shaw_values:tupe+shaw", "rotary+deberta", "gated:rotary+transformer_xl"]
NAMES += ["power:kerple", "shaw_per_head:shaw", "scaled:rotary"]
NAMES += [f"ffn_{name}:none" for name in FEED_FORWARDS]
#: variants of encodings
FORMS = {"deberta": ["--deberta-released"], "tupe": ["--tupe-free"], "t5": ["--t5-products"]}


@pytest.mark.parametrize("name, form", [(n, []) for n in NAMES] + list(FORMS.items()))
def test_gradients_of_all_parameters(name, form):
    """The source is padded, so that masks are tested, too."""
    encodings = name.rpartition(":")[2].split("+")
    clipped = [f"--{each}-max-distance=2" for each in CLIPPED if each in encodings]
    smooth = [] if name in OWN_ACTIVATION else SMOOTH
    model = tiny(name, *SMALL, *smooth, *clipped, *form).double()
    source, target = sentences(2, 5), sentences(2, 4, seed=1)
    source[0, :2] = PAD
    parameters = parameters_of(model)
    for key, parameter in parameters.items():
        if "position" in key:  # larger than initial values, so that errors show
            torch.nn.init.normal_(parameter, std=0.5)

    def logits(*_):  # gradcheck changes the parameters in place
        return model(source, None, target)[0]

    assert torch.autograd.gradcheck(logits, tuple(parameters.values()), fast_mode=True)


SOURCE, TARGET = sentences(3, 7), sentences(3, 9, seed=1)
SOURCE[0, :2] = PAD
SHARING = ["rotary", "shaw_values:tupe+shaw", "gated:rotary", "favor:rotary", "ffn_swiglu:t5"]


@pytest.mark.parametrize("name", SHARING)
def test_gradients_are_the_sums_of_those_of_equal_layers(name):
    shared = tiny(name, "--share-layers", "all").train()
    plain = tiny(name).train()
    plain.load_state_dict(shared.state_dict())
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
