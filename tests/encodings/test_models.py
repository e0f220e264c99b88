"""Encodings in models: different ones per stack or layer, what is computed once, and refusals."""

import re

import pytest
import torch
from support.formulas import CONTENT
from support.helpers import PAD, causal_only, decode_in_steps, sentences, tiny
from support.masked_language_models import texts
from support.masked_language_models import tiny as masked_lm
from support.parts import encoding_of, places_of, storage_of

from fairseq_posenc.attention import Batch
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.content import Content
from fairseq_posenc.encodings.nezha import vectors
from fairseq_posenc.encodings.rotary import Rotary

pytestmark = pytest.mark.properties


# --- encodings that differ between layers or stacks

FOUR = ["--encoder-layers", "4", "--decoder-layers", "4"]


def names(stack):
    return [layer.encoding.name for layer in stack.layers]


def test_layers_follow_the_pattern_and_keep_their_encodings_when_others_are_pruned():
    model = tiny("rotary,t5", *FOUR)
    assert names(model.encoder) == names(model.decoder) == ["rotary", "t5"] * 2
    keep = ["--encoder-layers-to-keep", "1,3", "--decoder-layers-to-keep", "0,1"]
    model = tiny("rotary*3,none", *FOUR, *keep)
    assert names(model.encoder) == ["rotary", "none"]
    assert names(model.decoder) == ["rotary", "rotary"]


@torch.no_grad()
def test_every_layer_uses_the_encoding_it_has():
    """A pattern with the same encoding for both layers equals that encoding alone."""
    source, target = sentences(2, 7), sentences(2, 8, seed=1)
    plain, same, other = map(tiny, ("rotary", "rotary,rotary", "rotary,none"))
    for model in (same, other):
        model.load_state_dict(plain.state_dict())
    want = plain(source, None, target)[0]
    torch.testing.assert_close(same(source, None, target)[0], want)
    assert not torch.allclose(other(source, None, target)[0], want, atol=1e-3)


def test_parameters_of_a_second_composition_have_names_of_their_own():
    keys = set(tiny("t5,tupe").state_dict())
    assert "encoder.position_bias.t5.table.weight" in keys
    assert "encoder.position_bias_1.tupe.table.weight" in keys


@pytest.mark.parametrize("encoder, decoder", [("learned", "rotary"), ("rotary,none", "sinusoidal")])
def test_sides_have_encodings_of_their_own(encoder, decoder):
    model = tiny(decoder, "--encoder-position-encoding", encoder)
    assert set(names(model.encoder)) == set(encoder.split(","))
    assert set(names(model.decoder)) == {decoder}
    assert (model.encoder.embed_positions is None) == (encoder != "learned")
    assert (model.decoder.embed_positions is None) == (decoder != "sinusoidal")


# --- what is computed once


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer_xl", "deberta"])
def test_decoding_projects_distances_when_their_number_doubles_only(name, monkeypatch):
    model, calls = tiny(name, "--decoder-layers", "1"), []
    kind = ENCODINGS[name].content
    plain = kind.project
    source, target = sentences(2, 5), sentences(2, 20, seed=1)
    model.encoder(source)
    monkeypatch.setattr(kind, "project", lambda *a: calls.append(len(a[1])) or plain(*a))
    decode_in_steps(model, source, target, [3] + [1] * 17)
    assert calls[2:] == [5, 7, 15, 31, 63]  # the first two calls are the encoder's


@pytest.mark.parametrize("name", CONTENT)
def test_memory_grows_with_pairs_of_tokens_not_with_pairs_times_channels(name):
    encoding, length = encoding_of(name, 2, 16, causal_only(name), nezha_max_distance=16), 64
    terms = encoding.build_content_bias()
    q, k = (torch.randn(3, 2, length, 16, requires_grad=True) for _ in "qk")
    x, sizes = torch.randn(3, length, 32), []

    def note(tensor):
        sizes.append(storage_of(tensor).nbytes() // tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        content = Content(x, q, k, 1.0, places_of(length), key_states=terms.key_states(x))
        out = terms(content, encoding.distance_vectors(content.places, q), {})
    assert out.shape == (3, 2, length, length)
    assert sizes and max(sizes) <= 2 * out.numel()


def test_layers_have_bases_by_a_pattern_and_equal_ones_share_a_table(monkeypatch):
    calls, plain = [], Rotary.table

    def table(self, at, layer=0):
        calls.append(self.variant(layer))
        return plain(self, at, layer)

    monkeypatch.setattr(Rotary, "table", table)
    flags = ["--rotary-base", "160000*2,10000", "--encoder-layers", "4", "--decoder-layers", "4"]
    encoder = tiny("rotary", *flags).encoder
    x = torch.zeros(1, 5, encoder.layers[0].embed_dim)
    prepared = encoder.prepare(Batch(x, 5))
    assert calls == [160000.0, 10000.0]
    tables = [prepared[layer.self_attn.kind]["table"] for layer in encoder.layers]
    assert tables[0] is tables[1] is tables[3]
    for table, base in zip(tables, (160000.0, 160000.0, 10000.0)):
        want = encoding_of("rotary", 4, 8, rotary_base=base).transform.table(torch.arange(5)[None])
        assert torch.equal(table, want)


def test_content_free_logits_are_computed_once_and_for_no_sentence_in_particular():
    model, shapes = masked_lm("tupe+t5", "--untie-cls"), []
    terms = model.encoder.sentence_encoder.position_bias
    terms.register_forward_hook(lambda *call: shapes.append(tuple(call[2].shape)))
    tokens = texts(3)
    tokens[1, 6:] = PAD
    model(tokens)
    assert shapes == [(1, 4, 9, 9)]


def test_forget_gates_keep_their_bias_without_biases():
    model = tiny("simple:fox", "--encoder-position-encoding", "none")
    names = {n for n, _ in model.decoder.named_parameters() if "self_attn" in n and "bias" in n}
    assert names == {f"layers.{i}.self_attn.position_terms.fox.bias" for i in range(2)}


def test_sinusoids_made_in_inference_serve_a_training():
    vectors.cache_clear()
    with torch.inference_mode():
        table = vectors(3, 4, torch.float32, torch.device("cpu"))
    assert not table.is_inference()


def test_xpos_refuses_float16_where_its_scales_overflow():
    # the scales of 64 positions go up to 2^14
    transform = encoding_of("xpos", 2, 8, causal=True, xpos_scale_base=4.0).transform
    table = transform.table(torch.arange(2)[None])
    q = torch.randn(1, 2, 1, 8)
    transform(q.bfloat16(), q.bfloat16(), q.bfloat16(), table)
    with pytest.raises(UsageError, match="float16, which is enough for 44; give fewer positions"):
        transform(q.half(), q.half(), q.half(), table)
    fits = encoding_of("xpos", 2, 8, causal=True, xpos_scale_base=4.0, longest=44).transform
    fits(q.half(), q.half(), q.half(), fits.table(torch.arange(2)[None]))


@pytest.mark.parametrize("name", [*filter(causal_only, ENCODINGS), "learned+xpos"])
def test_encoders_refuse_what_is_defined_for_decoders(name):
    with pytest.raises(UsageError, match=f"{re.escape(name)}: .*needs a causal stack"):
        encoding_of(name)
