"""Encodings by side, and patterns of encodings over layers."""

import pytest
import torch
from support.helpers import TINY, build, sentences

pytestmark = pytest.mark.properties

FOUR = ["--encoder-layers", "4", "--decoder-layers", "4"]


def model_of(*flags):
    return build("posenc_transformer", *TINY, *flags).eval()


def names(stack):
    return [layer.encoding.name for layer in stack.layers]


def test_layers_follow_the_pattern_and_keep_their_encodings_when_others_are_pruned():
    model = model_of(*FOUR, "--position-encoding", "rotary,t5")
    assert names(model.encoder) == names(model.decoder) == ["rotary", "t5"] * 2
    flags = [*FOUR, "--position-encoding", "rotary*3,none"]
    model = model_of(*flags, "--encoder-layers-to-keep", "1,3", "--decoder-layers-to-keep", "0,1")
    assert names(model.encoder) == ["rotary", "none"]
    assert names(model.decoder) == ["rotary", "rotary"]


@torch.no_grad()
def test_every_layer_uses_the_encoding_it_has():
    """A pattern that names the same encoding for both layers equals the encoding by itself."""
    source, target = sentences(2, 7), sentences(2, 8, seed=1)
    plain = model_of("--position-encoding", "rotary")
    same = model_of("--position-encoding", "rotary,rotary")
    other = model_of("--position-encoding", "rotary,none")
    for model in (same, other):
        model.load_state_dict(plain.state_dict())
    want = plain(source, None, target)[0]
    torch.testing.assert_close(same(source, None, target)[0], want)
    assert not torch.allclose(other(source, None, target)[0], want, atol=1e-3)


def test_parameters_of_a_second_composition_have_names_of_their_own():
    keys = set(model_of("--position-encoding", "t5,tupe").state_dict())
    assert "encoder.position_bias.t5.table.weight" in keys
    assert "encoder.position_bias_1.tupe.table.weight" in keys


@pytest.mark.parametrize("encoder, decoder", [("learned", "rotary"), ("rotary,none", "sinusoidal")])
def test_sides_have_encodings_of_their_own(encoder, decoder):
    flags = ["--encoder-position-encoding", encoder, "--decoder-position-encoding", decoder]
    model = model_of(*flags)
    assert set(names(model.encoder)) == set(encoder.split(","))
    assert set(names(model.decoder)) == {decoder}
    assert (model.encoder.embed_positions is None) == (encoder != "learned")
    assert (model.decoder.embed_positions is None) == (decoder != "sinusoidal")
