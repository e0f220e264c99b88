"""Analytical against numerical gradients, in float64, for every encoding."""

import pytest
import torch
from helpers import EVERY_ENCODING, PAD, parameters_of, sentences, tiny

SMALL = [
    *("--encoder-embed-dim", "8", "--encoder-ffn-embed-dim", "8", "--encoder-layers", "1"),
    *("--decoder-embed-dim", "8", "--decoder-ffn-embed-dim", "8", "--decoder-layers", "1"),
    *("--encoder-attention-heads", "2", "--decoder-attention-heads", "2"),
    *("--activation-fn", "tanh"),  # fairseq computes gelu in float32
]
CLIPPED = ("shaw", "deberta")
NAMES = EVERY_ENCODING + ["shaw_values:tupe+shaw", "rotary+deberta", "gated:rotary+transformer_xl"]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_all_parameters(name):
    """With a padded source, so that masks take part."""
    encodings = name.rpartition(":")[2].split("+")
    clipped = [f"--{each}-max-distance=2" for each in CLIPPED if each in encodings]
    model = tiny(name, *SMALL, *clipped).double()
    source, target = sentences(2, 5), sentences(2, 4, seed=1)
    source[0, :2] = PAD
    parameters = parameters_of(model)
    for key, parameter in parameters.items():
        if "position" in key:  # larger than they start, so that no error drowns
            torch.nn.init.normal_(parameter, std=0.5)

    def logits(*_):  # gradcheck changes the parameters in place
        return model(source, None, target)[0]

    assert torch.autograd.gradcheck(logits, tuple(parameters.values()), fast_mode=True)
