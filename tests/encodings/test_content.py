"""Content-dependent encodings by their papers' formulas, in layers and in models."""

import math
import re

import pytest
import torch
from support.formulas import (
    CLIPS,
    CONTENT,
    NAMES,
    B,
    D,
    H,
    Parts,
    by_hand,
    lengths,
    random,
    rotation_matrix,
)
from support.helpers import PAD, causal_only, decode_in_steps, sentences, tiny
from support.masked_language_models import count
from support.parts import attended_alone, encoding_of, places_of, storage_of

from fairseq_posenc.attention.functional import attend_with_weights
from fairseq_posenc.attention.gated import GatedAttention
from fairseq_posenc.attention.softmax import MultiheadAttention
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import ENCODINGS, Places
from fairseq_posenc.encodings.base import Content


@lengths
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "deberta+shaw+transformer_xl"])
def test_logits_are_those_of_the_paper(name, causal, length, keys):
    parts = Parts(name, causal=causal)
    q, k = random(B, H, length, D), random(B, H, keys, D)
    got = parts.logits(q, k, scale=0.3)
    torch.testing.assert_close(got, 0.3 * by_hand(parts, q, k), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("length", [6, 3, 1])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "name, flags",
    [(name, {}) for name in NAMES]
    + [("deberta", {"deberta_released": True}), ("deberta+shaw+transformer_xl", {})],
)
def test_logits_of_any_positions_are_those_of_the_paper(name, flags, causal, length):
    """Positions that start again, jump and go back, and are others in each sequence."""
    parts = Parts(name, causal=causal, **flags)
    positions = torch.tensor([[0, 1, 2, 0, 1, 9], [4, 0, 0, 7, 3, 3]])
    q, k = random(B, H, length, D), random(B, H, 6, D)
    places = Places(positions[:, 6 - length :], positions, 10)
    content = Content(None, q, k, 0.3, places)
    got = parts.terms(content, parts.encoding.distance_vectors(places, q), {})
    want = 0.3 * by_hand(parts, q, k, positions)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


@lengths
@pytest.mark.parametrize("name, flag", [("shaw", "shaw_per_head"), ("deberta", "deberta_released")])
def test_logits_of_the_other_forms_by_hand(name, flag, length, keys):
    parts = Parts(name, **{flag: True})
    q, k = random(B, H, length, D), random(B, H, keys, D)
    torch.testing.assert_close(parts.logits(q, k), by_hand(parts, q, k), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "name, factor",
    [
        ("shaw", 1),
        ("transformer_xl", 1),
        ("deberta", 3),
        ("tupe+shaw", 2),
        ("learned+transformer_xl", 1),
        ("rotary+shaw", 1),
        ("rotary+deberta", 3),
        ("transformer_xl+tupe+deberta", 6),
    ],
)
def test_the_whole_layer_by_hand(name, factor):
    """One scale on all products with content; what turns queries and keys turns q·k alone."""
    parts, length = Parts(name), 5
    layer = MultiheadAttention(H * D, H, parts.encoding).double().eval()
    layer.position_terms = parts.terms
    x = random(B, length, H * D)
    q, k, v = (
        projection(x).view(B, length, H, D).transpose(1, 2)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    got = attended_alone(layer, x)

    turned = [q, k]
    if "rotary" in name:
        turn = [rotation_matrix(m, D) for m in range(length)]
        turned = [torch.stack([y[:, :, m] @ turn[m].t() for m in range(length)], 2) for y in (q, k)]
    logits = turned[0] @ turned[1].transpose(-1, -2) + by_hand(parts, q, k)
    logits, shared = logits / math.sqrt(factor * D), parts.encoding.shared_bias
    logits = logits if shared is None else logits + shared(places_of(length))
    mixed = logits.softmax(-1) @ v
    want = layer.out_proj(mixed.transpose(1, 2).reshape(B, length, H * D))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


def test_values_that_are_added_see_the_weights_after_dropout():
    q, k, v, more = (torch.randn(B, H, 5, D) for _ in range(4))
    outs = []
    for values, function in ((v, lambda weights: weights @ more), (v + more, None)):
        torch.manual_seed(1)
        outs.append(
            attend_with_weights(q, k, values, 1.0, dropout=0.5, relative_values=function)[0]
        )
    torch.testing.assert_close(*outs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("normaliser", ["softmax_plus", "softmax"])
def test_gated_units_by_hand(name, normaliser):
    """All products with content take the factor of softmax_plus, log n / log of the reference."""
    flags = {"gau_key_size": H * D, "gau_normaliser": normaliser, **CLIPS}
    encoding = encoding_of(name, heads=1, head_dim=H * D, **flags)
    unit = GatedAttention(6, 1, encoding).double()
    x, length = random(B, 4, 6), 4
    allowed = torch.ones(length, length, dtype=torch.bool).tril()
    got = attended_alone(unit, x, causal=True)
    q, k, v, *_, u = unit.project(x, {})
    vectors = encoding.distance_vectors(places_of(length), q)
    seen = torch.arange(1, length + 1).double().view(-1, 1)
    content = Content(x, q, k, 1.0, places_of(length))
    extra = unit.position_terms(content, vectors, {})  # as tested above
    logits = (q @ k.transpose(-1, -2) + extra) * encoding.scale
    assert extra.abs().max() > 1e-3
    factor = seen.log() / math.log(512) if normaliser == "softmax_plus" else 1.0
    mixed = (logits * factor).masked_fill(~allowed, -math.inf).softmax(-1) @ v
    want = unit.out_proj(u * mixed.squeeze(1))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


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
    assert calls[2:] == [5, 7, 15, 31, 63]  # after the encoder's two layers


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
        places = places_of(length)
        vectors = encoding.distance_vectors(places, q)
        content = Content(x, q, k, 1.0, places, key_states=terms.key_states(x))
        out = terms(content, vectors, {})
    assert out.shape == (3, 2, length, length)
    assert sizes and max(sizes) <= 2 * out.numel()


PAIRS = [f"{a}+{b}" for a in CONTENT for b in sorted(ENCODINGS) if a < b or b not in CONTENT]


@torch.no_grad()
@pytest.mark.parametrize("name", PAIRS)
def test_every_pair_is_refused_by_name_or_works(name):
    """Cached decoding of several tokens at once and left-padded sources change nothing."""
    if "none" in name:
        with pytest.raises(UsageError, match="none cannot be combined"):
            tiny(name)
        return
    model = tiny(name)
    source, target = sentences(1, 6), sentences(1, 7, seed=1)
    full, _ = model(source, None, target)
    padded = torch.cat((torch.full((1, 3), PAD), source), dim=1)
    steps = decode_in_steps(model, padded, target, [3, 1, 2, 1])
    torch.testing.assert_close(steps, full, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "name, added",
    [
        ("shaw", 12 * 33 * 64),
        ("transformer_xl", 12 * (768 * 768 + 2 * 768)),
        ("deberta", 12 * 2 * 768 * 768 + 1024 * 768),
    ],
)
def test_parameters_of_the_masked_lm_presets(name, added):
    ours, without = (count(f"{each}_masked_lm_base", 100) for each in (name, "roformer"))
    assert ours - without == added


@pytest.mark.parametrize("name", [*filter(causal_only, ENCODINGS), "learned+xpos"])
def test_encoders_refuse_what_is_defined_for_decoders(name):
    with pytest.raises(UsageError, match=f"{re.escape(name)}: .*needs a causal stack"):
        encoding_of(name)
