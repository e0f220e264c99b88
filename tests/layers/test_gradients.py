"""Analytical against numerical gradients, in float64, for every encoding."""

import pytest
import torch
from support.commands import shape
from support.helpers import EVERY_ENCODING, FEED_FORWARDS, PAD, parameters_of, sentences, tiny

SMALL = shape(1, 8, 8, 2)
#: fairseq computes gelu in float32; these have an activation of their own
SMOOTH = ["--activation-fn", "tanh"]
OWN_ACTIVATION = ("ffn_swiglu:none", "ffn_geglu:none")
CLIPPED = ("shaw", "deberta")
NAMES = EVERY_ENCODING + ["shaw_values:tupe+shaw", "rotary+deberta", "gated:rotary+transformer_xl"]
NAMES += ["power:kerple", "shaw_per_head:shaw", "scaled:rotary"]
NAMES += [f"ffn_{name}:none" for name in FEED_FORWARDS]
#: other forms of encodings
FORMS = {"deberta": ["--deberta-released"], "tupe": ["--tupe-free"], "t5": ["--t5-products"]}


@pytest.mark.parametrize("name, form", [(n, []) for n in NAMES] + list(FORMS.items()))
def test_gradients_of_all_parameters(name, form):
    """A batch with a padded source, so that masks take part."""
    encodings = name.rpartition(":")[2].split("+")
    clipped = [f"--{each}-max-distance=2" for each in CLIPPED if each in encodings]
    smooth = [] if name in OWN_ACTIVATION else SMOOTH
    model = tiny(name, *SMALL, *smooth, *clipped, *form).double()
    source, target = sentences(2, 5), sentences(2, 4, seed=1)
    source[0, :2] = PAD
    parameters = parameters_of(model)
    for key, parameter in parameters.items():
        if "position" in key:  # larger than they start, so that no error drowns
            torch.nn.init.normal_(parameter, std=0.5)

    def logits(*_):  # gradcheck changes the parameters in place
        return model(source, None, target)[0]

    assert torch.autograd.gradcheck(logits, tuple(parameters.values()), fast_mode=True)
