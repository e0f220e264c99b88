"""Shaw, Transformer-XL and DeBERTa against their papers' formulas and other implementations."""

import math
from argparse import Namespace

import pytest
import torch
from helpers import PAD, TINY, build, encoding_of, parameters_of, sentences, tiny
from test_gated import FLAGS
from test_masked_lm import count
from test_properties import decode_in_steps
from test_rotary import rotation_matrix

from fairseq_posenc.attention.functional import additive_mask, attend_with_weights
from fairseq_posenc.attention.gated import GatedAttention
from fairseq_posenc.attention.multihead import MultiheadAttention
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.errors import UsageError

B, H, D = 2, 2, 4
CLIPS = {"shaw_distance": 2, "deberta_distance": 3}
NAMES = ["shaw", "transformer_xl", "deberta"]
# query and key lengths: training, one decoding step, several tokens at once, the first token
LENGTHS = [(6, 6), (1, 6), (3, 6), (5, 6), (1, 1)]


class Parts:
    """The modules of an encoding outside of any model, in float64, with random parameters."""

    def __init__(self, name, **flags):
        self.encoding = encoding_of(name, **{"heads": H, "head_dim": D, **CLIPS, **flags})
        self.terms = self.encoding.build_layer().double()
        self.tables = self.encoding.build_distances()
        for module in (self.terms, self.tables):
            for parameter in module.parameters() if module else ():
                torch.nn.init.normal_(parameter)
        if self.tables:
            self.tables.double()

    def vectors(self, q, k):
        return self.encoding.distance_vectors(self.tables, q.size(2), k.size(2), q)

    def logits(self, q, k, scale=1.0):
        return self.terms(q, k, scale, None, None, self.vectors(q, k), {})


def clip(value, least, most):
    return max(least, min(most, value))


def shaw_by_hand(parts, h, i, j, q, k):
    """Shaw et al. Eq. 4, the second summand."""
    later = 0 if parts.encoding.stack.causal else 2
    return q @ parts.terms["shaw"].key_table.weight[clip(j - i, -2, later) + 2]


def transformer_xl_by_hand(parts, h, i, j, q, k):
    """RoFormer Eq. 34, the last three summands."""
    own, channels = parts.terms["transformer_xl"], H * D
    r = torch.zeros(channels, dtype=torch.double)
    for t in range(channels // 2):
        angle = (i - j) / 10000 ** (2 * t / channels)
        r[2 * t], r[2 * t + 1] = math.sin(angle), math.cos(angle)
    projected = (own.proj.weight @ r)[h * D : (h + 1) * D]
    return q @ projected + own.u[h, 0] @ k + own.v[h, 0] @ projected


def deberta_by_hand(parts, h, i, j, q, k):
    """DeBERTa Eq. 4, the last two summands, with δ of Eq. 3."""
    own, head = parts.terms["deberta"], slice(h * D, (h + 1) * D)

    def delta(i, j):
        return 0 if i - j <= -3 else 5 if i - j >= 3 else i - j + 3

    table = parts.tables["deberta"].table.weight
    to_position = q @ (own.k_proj.weight @ table[delta(i, j)])[head]
    return to_position + k @ (own.q_proj.weight @ table[delta(j, i)])[head]


BY_HAND = {
    "shaw": shaw_by_hand,
    "transformer_xl": transformer_xl_by_hand,
    "deberta": deberta_by_hand,
}


def by_hand(parts, q, k):
    """Logits of all content-dependent encodings in *parts*, by loops; queries are the last."""
    out = torch.zeros(*q.shape[:3], k.size(2), dtype=torch.double)
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            for t in range(q.size(2)):
                for j in range(k.size(2)):
                    i = k.size(2) - q.size(2) + t
                    for name in set(parts.encoding.name.split("+")) & set(BY_HAND):
                        value = BY_HAND[name](parts, h, i, j, q[b, h, t], k[b, h, j])
                        out[b, h, t, j] += value.detach()
    return out


def random(*shape):
    return torch.randn(*shape, dtype=torch.double)


# --- the formulas


@pytest.mark.parametrize("length, keys", LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "deberta+shaw+transformer_xl"])
def test_logits_are_those_of_the_paper(name, causal, length, keys):
    parts = Parts(name, causal=causal)
    q, k = random(B, H, length, D), random(B, H, keys, D)
    got = parts.logits(q, k, scale=0.3)
    torch.testing.assert_close(got, 0.3 * by_hand(parts, q, k), atol=1e-6, rtol=1e-6)


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
    x = random(length, B, H * D)
    table = parts.encoding.table(torch.arange(length)[None])
    q, k, v = (
        projection(x).view(length, B, H, D).permute(1, 2, 0, 3)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    got, _ = layer(x, table=table, distance_vectors=parts.vectors(q, k))

    turned = [q, k]
    if "rotary" in name:
        turn = [rotation_matrix(m, D) for m in range(length)]
        turned = [torch.stack([y[:, :, m] @ turn[m].t() for m in range(length)], 2) for y in (q, k)]
    logits = turned[0] @ turned[1].transpose(-1, -2) + by_hand(parts, q, k)
    mixed = (logits / math.sqrt(factor * D)).softmax(-1) @ v
    want = layer.out_proj(mixed.permute(2, 0, 1, 3).reshape(length, B, H * D))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("length, keys", LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
def test_shaws_values_by_hand(causal, length, keys):
    """Shaw et al. Eq. 3, the second summand."""
    parts = Parts("shaw", causal=causal, shaw_values=True)
    weights = random(B, H, length, keys)
    got = parts.terms.more_values(weights, None, None)
    table = parts.terms["shaw"].value_table.weight
    want = torch.zeros(B, H, length, D, dtype=torch.double)
    for t in range(length):
        for j in range(keys):
            row = clip(j - (keys - length + t), -2, 0 if causal else 2) + 2
            want[:, :, t] += weights[:, :, t, j, None] * table[row]
    torch.testing.assert_close(got, want)


def test_values_that_are_added_see_the_weights_after_dropout():
    q, k, v, more = (torch.randn(B, H, 5, D) for _ in range(4))
    outs = []
    for values, function in ((v, lambda weights: weights @ more), (v + more, None)):
        torch.manual_seed(1)
        outs.append(attend_with_weights(q, k, values, 1.0, dropout=0.5, more_values=function)[0])
    torch.testing.assert_close(*outs)


def test_dropped_weights_reach_shaws_values():
    parts = Parts("shaw", shaw_values=True)
    layer = MultiheadAttention(H * D, H, parts.encoding, dropout=1.0 - 1e-7).double()
    x = random(5, B, H * D)
    got, _ = layer(x)
    torch.testing.assert_close(got, layer.out_proj(torch.zeros_like(x)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("normaliser", ["softmax_plus", "softmax"])
def test_gated_units_by_hand(name, normaliser):
    """All products with content take the factor of softmax_plus, log n / log of the reference."""
    encoding = encoding_of(name, heads=1, head_dim=H * D, **CLIPS)
    options = {**FLAGS, "gau_key_size": H * D, "gau_normaliser": normaliser}
    unit = GatedAttention(6, encoding, Namespace(**options, position_encoding=name)).double()
    tables = encoding.build_distances()
    x, length = random(4, B, 6), 4
    allowed = torch.ones(length, length, dtype=torch.bool).tril()
    mask = torch.zeros(1, 1, length, length, dtype=torch.double).masked_fill(~allowed, -math.inf)
    q, k, v, *_, u = unit.project(x, None)
    vectors = encoding.distance_vectors(tables, length, length, q)
    got, _ = unit(x, mask, distance_vectors=vectors)

    extra = unit.position_terms(q, k, 1.0, None, None, vectors, {})  # as tested above
    logits = (q @ k.transpose(-1, -2) + extra) * encoding.scale
    assert extra.abs().max() > 1e-3
    seen = torch.arange(1, length + 1).double().view(-1, 1)
    factor = seen.log() / math.log(512) if normaliser == "softmax_plus" else 1.0
    mixed = (logits * factor).masked_fill(~allowed, -math.inf).softmax(-1) @ v
    want = unit.out_proj(u * mixed.squeeze(1).transpose(0, 1))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


# --- decoding, memory, composition


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer_xl", "deberta"])
def test_decoding_projects_distances_when_their_number_doubles_only(name, monkeypatch):
    model, calls = tiny(name, "--decoder-layers", "1"), []
    kind = ENCODINGS[name].layer
    plain = kind.project
    source, target = sentences(2, 5), sentences(2, 20, seed=1)
    model.encoder(source)
    monkeypatch.setattr(kind, "project", lambda *a: calls.append(len(a[1])) or plain(*a))
    decode_in_steps(model, source, target, [3] + [1] * 17)
    assert calls[2:] == [5, 7, 15, 31, 63]  # after the encoder's two layers


@pytest.mark.skipif(not hasattr(torch.Tensor, "untyped_storage"), reason="PyTorch before 2.0")
@pytest.mark.parametrize("name", NAMES)
def test_memory_grows_with_pairs_of_tokens_not_with_pairs_times_channels(name):
    encoding, length = encoding_of(name, heads=2, head_dim=16), 64
    terms, tables = encoding.build_layer(), encoding.build_distances()
    q, k = (torch.randn(3, 2, length, 16, requires_grad=True) for _ in "qk")
    sizes = []

    def note(tensor):
        sizes.append(tensor.untyped_storage().nbytes() // tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        vectors = encoding.distance_vectors(tables, length, length, q)
        out = terms(q, k, 1.0, None, None, vectors, {})
    assert out.shape == (3, 2, length, length)
    assert sizes and max(sizes) <= 2 * out.numel()


PAIRS = [f"{a}+{b}" for a in NAMES for b in sorted(ENCODINGS) if a < b or b not in NAMES]


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


@torch.no_grad()
@pytest.mark.parametrize("name", ["rotary+shaw", "rotary+transformer_xl", "rotary+deberta"])
def test_with_rotary_they_stay_relative(name, monkeypatch):
    """Terms made of turned queries would see absolute positions."""
    model, source, target = tiny(name), sentences(2, 7), sentences(2, 6, seed=1)
    assert model.encoder.encoding.relative
    before, _ = model(source, None, target)
    for stack in (model.encoder, model.decoder):
        plain = stack.encoding.positions
        monkeypatch.setattr(stack.encoding, "positions", lambda *a, f=plain: f(*a) + 77)
    torch.testing.assert_close(model(source, None, target)[0], before, atol=2e-5, rtol=0)


# --- parameters and flags


def test_deberta_has_one_table_a_stack_and_projections_in_every_layer():
    state = tiny("deberta", "--deberta-distance", "9").state_dict()
    tables = {key: value.shape for key, value in state.items() if "table" in key}
    assert tables == {
        f"{side}.position_vectors.deberta.table.weight": (18, 32) for side in ("encoder", "decoder")
    }
    for side in ("encoder", "decoder"):
        for layer in (0, 1):
            for projection in ("q_proj", "k_proj"):
                key = f"{side}.layers.{layer}.self_attn.position_terms.deberta.{projection}.weight"
                assert state[key].shape == (32, 32)


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


def test_shaw_base_is_the_transformer_base_with_keys_and_values_clipped_at_16():
    model = build("shaw_base")
    shapes = {k: tuple(p.shape) for k, p in parameters_of(model).items() if "shaw" in k}
    assert len(shapes) == 2 * 12
    for key, shape in shapes.items():
        assert shape == ((33, 64) if key.startswith("encoder") else (17, 64))
    assert model.encoder.layers[0].fc1.weight.shape == (2048, 512)


@pytest.mark.parametrize(
    "flags, words",
    [
        (["shaw", "--shaw-distance", "0"], "--shaw-distance 0: must be at least 1"),
        (["deberta", "--deberta-distance", "0"], "--deberta-distance 0: must be at least 1"),
        (["transformer_xl", "--layer", "gated", "--gau-key-size", "7"], "7 channels .* even"),
        (["learned+deberta", "--layer", "gated", "--gau-normaliser", "scaled_squared_relu"],
         "--gau-normaliser scaled_squared_relu: .* deberta; give softmax_plus or softmax"),
        (["shaw", "--shaw-values", "--layer", "gated"], "--shaw-values: the values of a gated"),
        (["shaw+shaw"], "named twice"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_by_name(flags, words):
    with pytest.raises(UsageError, match=words) as error:
        build("posenc_transformer", *TINY, "--position-encoding", *flags)
    assert "\n" not in str(error.value)


# --- other implementations


def visible(case, inputs, length, keys):
    """The mask of a reference: causal, padded on the right, both or neither."""
    lengths = inputs["key_lens"] if "padded" in case else torch.full((3,), keys)
    padding = torch.arange(keys) >= lengths[:, None]
    real = (torch.arange(length) < lengths[:, None])[..., None, None]  # of equally many queries
    like = inputs["q"]
    return additive_mask(length, keys, "causal" in case, padding, like), real


def attended(parts, inputs, mask, distance_vectors=None):
    """Output (B, T, H, D) and weights (B, H, T, S) for references laid out as (B, T, H, D)."""
    q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
    scale, terms = parts.encoding.scale, parts.terms.float()
    logits = terms(q, k, scale, None, None, parts.vectors(q, k), {})
    more = (lambda w: terms.more_values(w, None, None)) if terms.needs_weights else None
    out, weights = attend_with_weights(q, k, v, scale, mask + logits, more_values=more)
    return out.transpose(1, 2), weights


class TestOtherImplementations:
    """fairseq2's modules."""

    @pytest.mark.parametrize(
        "file, case",
        [("shaw_sym_values", c) for c in ("full", "padded", "causal", "causal_padded")]
        + [("shaw_cached_query", c) for c in ("full", "causal")],
    )
    def test_shaw(self, golden, file, case):
        ref = golden(file)
        causal, inputs = "causal" in case, ref["inputs"]
        flags = {"shaw_distance": 4, "shaw_values": True, "causal": causal}
        parts = Parts("shaw", heads=4, head_dim=8, **flags)
        own = parts.terms["shaw"]
        with torch.no_grad():  # where later keys are hidden, we have no vectors for them
            for table, name in ((own.key_table, "k"), (own.value_table, "v")):
                table.weight.copy_(
                    ref["state_dict"][f"rel_{name}_embed.weight"][: len(table.weight)]
                )
        mask, real = visible(case, inputs, inputs["q"].size(1), 11)
        out, weights = attended(parts, inputs, mask)
        want, want_weights = ref["outputs"][case], ref["outputs"][case + "_weights"]
        torch.testing.assert_close(out * real, want * real, atol=1e-5, rtol=1e-5)
        real = real.transpose(1, 2)
        torch.testing.assert_close(weights * real, want_weights * real, atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("case", ["full", "padded", "causal"])
    def test_transformer_xl(self, golden, case):
        ref = golden("xl_fairseq2")
        parts = Parts("transformer_xl", heads=4, head_dim=8)
        own, state = parts.terms["transformer_xl"], ref["state_dict"]
        with torch.no_grad():
            own.proj.weight.copy_(state["r_proj.weight"])
            own.u.copy_(state["u_bias"].unsqueeze(1))
            own.v.copy_(state["v_bias"].unsqueeze(1))
        r = parts.tables["transformer_xl"](torch.arange(-10, 11))
        torch.testing.assert_close(r, ref["outputs"]["r_table"], atol=1e-5, rtol=0)
        mask, real = visible(case, ref["inputs"], 11, 11)
        out, weights = attended(parts, ref["inputs"], mask)
        want, want_weights = ref["outputs"][case], ref["outputs"][case + "_weights"]
        torch.testing.assert_close(out * real, want * real, atol=1e-5, rtol=1e-5)
        real = real.transpose(1, 2)
        torch.testing.assert_close(weights * real, want_weights * real, atol=1e-5, rtol=1e-5)
