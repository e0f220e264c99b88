"""Checkpoints of one encoding continued with another: what changes is listed, nothing else does."""

import logging

import pytest
import torch
from support.helpers import TINY, build, model_settings, parameters_of, sentences, tiny
from support.own_encodings import OWN

from fairseq_posenc.encodings import ENCODINGS as registry

ENCODINGS = ["rotary", "sinusoidal", "learned", "none", "learned+rotary"]


def stock(*flags):
    return build("transformer", *TINY, *flags).eval()


def same(one, other):
    """Whether two models' parameters agree in name and value."""
    return set(one) == set(other) and all(torch.equal(one[key], other[key]) for key in one)


def load(model, state, caplog):
    """Load strictly, as fairseq does; returns what was listed."""
    with caplog.at_level(logging.WARNING, logger="fairseq_posenc"):
        model.load_state_dict({key: value.clone() for key, value in state.items()}, strict=True)
    return [record.getMessage() for record in caplog.records]


def test_a_stock_transformer_continues_as_a_roformer_and_back(caplog):
    source, roformer = stock(), tiny("rotary")
    load(roformer, source.state_dict(), caplog)
    assert same(parameters_of(roformer), parameters_of(source))
    other = stock()
    other.load_state_dict(roformer.state_dict(), strict=True)
    assert same(parameters_of(other), parameters_of(source))


def test_a_sinusoidal_model_of_ours_computes_what_stock_computes():
    source, model = stock(), tiny("sinusoidal")
    model.load_state_dict(source.state_dict())
    tokens, target = sentences(3, 7), sentences(3, 5, seed=1)
    torch.testing.assert_close(
        model(tokens, None, target)[0], source(tokens, None, target)[0], atol=1e-5, rtol=1e-5
    )


def test_a_table_that_is_left_out_is_listed(caplog):
    source = stock("--encoder-learned-pos", "--decoder-learned-pos")
    messages = load(tiny("rotary"), source.state_dict(), caplog)
    for side in ("encoder", "decoder"):
        assert any("left out" in m and f"{side}.embed_positions.weight" in m for m in messages)


def test_a_table_that_is_new_is_listed_and_keeps_its_initial_values(caplog):
    model = tiny("learned")
    before = model.encoder.embed_positions.weight.clone()
    messages = load(model, tiny("rotary").state_dict(), caplog)
    assert torch.equal(model.encoder.embed_positions.weight, before)
    for side in ("encoder", "decoder"):
        assert any("untrained" in m and f"{side}.embed_positions.weight" in m for m in messages)


@pytest.mark.parametrize("start", ENCODINGS)
@pytest.mark.parametrize("end", ENCODINGS)
def test_every_encoding_continues_as_every_other(start, end, caplog):
    source, model = tiny(start), tiny(end)
    messages = load(model, source.state_dict(), caplog)
    if start == end:
        assert not messages
    for key, value in model.state_dict().items():
        if "embed_positions" not in key:
            assert torch.equal(value, source.state_dict()[key]), key


def test_anything_else_that_is_missing_or_superfluous_still_fails(caplog):
    state = tiny("rotary").state_dict()
    missing = {k: v for k, v in state.items() if k != "encoder.layers.0.fc1.weight"}
    with pytest.raises(RuntimeError, match=r"encoder\.layers\.0\.fc1\.weight"):
        load(tiny("rotary"), missing, caplog)
    with pytest.raises(RuntimeError, match="something"):
        load(tiny("rotary"), dict(state, **{"encoder.something": torch.zeros(1)}), caplog)


def test_layer_terms_survive_pruning(caplog, monkeypatch):
    """--encoder-layers-to-keep renumbers layers after the checkpoint was fitted to the model."""
    monkeypatch.setitem(registry, "own_layer", OWN["own_layer"])
    full = tiny("own_layer", "--encoder-layers", "3")
    # fairseq wants both sides named, or drops the other one's layers altogether
    keep = ["--encoder-layers-to-keep", "0,2", "--decoder-layers-to-keep", "0,1"]
    flags = ["--position-encoding", "own_layer", *TINY, "--encoder-layers", "3", *keep]
    pruned = build("posenc_transformer", *flags)
    cfg = model_settings("posenc_transformer", *flags)
    pruned.load_state_dict(full.state_dict(), strict=True, model_cfg=cfg)
    key = "self_attn.position_terms.own_layer.table.weight"
    for new, old in ((0, 0), (1, 2)):
        assert torch.equal(
            pruned.state_dict()[f"encoder.layers.{new}.{key}"],
            full.state_dict()[f"encoder.layers.{old}.{key}"],
        )
