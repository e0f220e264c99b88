"""Every encoding against its paper's formulas in float64; initial values of parameters."""

import math

import pytest
import torch
from support.formulas import (
    LOGITS,
    B,
    Case,
    D,
    H,
    clip,
    lengths,
    random,
    rotation_matrix,
    shaw_vector,
    sines,
    untied,
)
from support.helpers import causal_only, sentences, tiny
from support.parts import attended_alone, encoding_of

from fairseq_posenc.attention.softmax import MultiheadAttention
from fairseq_posenc.encodings import ENCODINGS, dape
from fairseq_posenc.encodings.content import Content

pytestmark = pytest.mark.formulas

#: every encoding with a function in LOGITS, with its default flags and in its variants
FORMS = [(name, {}) for name in LOGITS]
FORMS += [
    ("kerple", {"kerple_kernel": "power"}),
    ("t5", {"t5_products": True}),
    ("tupe", {"tupe_free": True}),
    ("shaw", {"shaw_per_head": True}),
    ("deberta", {"deberta_released": True}),
    *(("dape", {"dape_bias": bias}) for bias in ("alibi", "fire")),
    ("deberta+shaw+transformer_xl", {}),
    ("tupe+t5+alibi", {}),
]


def test_every_encoding_has_a_formula():
    others = {"rotary", "xpos", "bert_ad", "learned", "sinusoidal", "none"}
    assert {*LOGITS, *others} == {
        n for n, e in ENCODINGS.items() if "fairseq_posenc" in e.acts.__module__
    }


@lengths
@pytest.mark.parametrize(
    "name, flags, causal",
    [(n, flags, c) for n, flags in FORMS for c in (False, True) if c or not causal_only(n)],
)
def test_logits_are_those_of_the_paper(name, flags, causal, length, keys):
    """The first key of the second sentence is padding."""
    case = Case(name, length, keys, causal=causal, padded=1, **flags)
    torch.testing.assert_close(case.computed(), case.by_hand(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("length", [6, 3, 1])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name, flags", [f for f in FORMS if not causal_only(f[0])])
def test_logits_of_any_positions_are_those_of_the_paper(name, flags, causal, length):
    """Positions restart, jump and go back, and differ between the two sequences."""
    positions = torch.tensor([[0, 1, 2, 0, 1, 9], [4, 0, 0, 7, 3, 3]])
    case = Case(name, length, 6, positions, causal=causal, **flags)
    torch.testing.assert_close(case.computed(), case.by_hand(), atol=1e-6, rtol=1e-6)


@lengths
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "name, flags",
    [("shaw", {"shaw_per_head": False}), ("shaw", {"shaw_per_head": True}), ("nezha", {})],
)
def test_values_by_hand(name, flags, causal, length, keys):
    """The second summand of Shaw et al. Eq. 3; for a single query it is added to the values."""
    case = Case(name, length, keys, causal=causal, shaw_values=True, **flags)
    weights, want = random(B, H, length, keys), torch.zeros(B, H, length, D, dtype=torch.double)
    content = Content(None, case.q, case.k, 1.0, case.places)
    for h, t, j in torch.cartesian_prod(*map(torch.arange, (H, length, keys))).view(-1, 3).tolist():
        d = case.distance(0, t, j)
        vector = sines(clip(-d, -2, 2), D)
        if name == "shaw":
            vector = shaw_vector(case, case.terms["shaw"].value_table, h, d).detach()
        want[:, h, t] += weights[:, h, t, j, None] * vector
    torch.testing.assert_close(case.terms.relative_values(content, weights).detach(), want)
    added = case.terms.added_values(content)
    assert (added is None) == (length > 1)
    if added is not None:  # Σ_j w_j a_j, with a vector for each key
        torch.testing.assert_close((weights @ added.expand(B, H, keys, D)).detach(), want)


@pytest.mark.parametrize(
    "name, factor",
    [
        ("rotary", 1),
        ("shaw", 1),
        ("transformer_xl", 1),
        ("deberta", 3),
        ("tupe+shaw", 2),
        ("rotary+shaw", 1),
        ("rotary+deberta", 3),
        ("rotary+cope", 1),
        ("transformer_xl+tupe+deberta", 6),
        ("fox", 1),
        ("dape", 1),
    ],
)
@pytest.mark.parametrize("length_scale", [None, 3])
def test_the_whole_layer_by_hand(name, factor, length_scale):
    """All products with queries or keys have one scale; rotary rotates only q·k.

    --log-length-scale multiplies these products by log n / log N, but not gates or biases.
    """
    causal, length = causal_only(name) or length_scale is not None, 5
    case = Case(name, length, length, causal=causal, log_length_scale=length_scale)
    layer = MultiheadAttention(H * D, H, case.encoding).double().eval()
    layer.position_terms = case.terms
    x = case.x
    case.q, case.k, v = (
        projection(x).view(B, length, H, D).transpose(1, 2).detach()
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    got = attended_alone(layer, x, causal)
    case.scale = 1 / math.sqrt(factor * D)
    rotated = [case.q, case.k]
    if "rotary" in name:
        turn = [rotation_matrix(m, D) for m in range(length)]
        rotated = [
            torch.stack([y[:, :, m] @ turn[m].t() for m in range(length)], 2) for y in rotated
        ]
    products = rotated[0] @ rotated[1].transpose(-1, -2) * case.scale
    shared = 0.0 if case.shared is None else case.shared(case.places)
    terms = case.by_hand() - shared
    seen = torch.arange(1.0, length + 1).double()[:, None]
    scaled = seen.log() / math.log(3) if length_scale else 1.0
    products_alone = {"fox", "dape"} & {name}
    logits = products * scaled + terms * (1.0 if products_alone else scaled) + shared
    if causal:
        logits = logits.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
    mixed = logits.softmax(-1) @ v
    want = layer.out_proj(mixed.transpose(1, 2).reshape(B, length, H * D))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


# --- [CLS] untied (TUPE Eq. 9)


@pytest.mark.parametrize(
    "name, reset",
    [("tupe", "sum"), ("tupe+t5", "sum"), ("tupe+t5", "each"), ("t5", "sum"), ("alibi", "each")],
)
def test_equation_9_resets_the_sum_of_all_content_free_logits(name, reset):
    case = Case(name, 6, 6, has_cls=True, untie_cls=True, cls_reset=reset)
    want, got = case.by_hand(), case.computed()
    for h in range(H):
        theta = torch.zeros(2, dtype=torch.double)
        if "tupe" in case.shared:
            module = case.shared["tupe"]
            q, k = untied(module, torch.cat((module.cls.weight, module.table.weight[:1])))
            theta = theta + torch.stack([q[n, h] @ k[n, h] for n in (0, 1)]) / (2 * D) ** 0.5
        if case.shared.theta is not None:
            theta = theta + case.shared.theta[:, h]
        want[:, h, 1:, 0], want[:, h, 0] = theta[1].detach(), theta[0].detach()
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)
    by_position = case.shared(case.places._replace(by_index=False)).double()
    torch.testing.assert_close(by_position[0], want[0], atol=1e-6, rtol=1e-6)
    assert (case.shared.theta is None) == (name.startswith("tupe") and reset == "sum")


def transformed(name, q, positions, **flags):
    """*q* (B, T, H, D) at *positions* (T), transformed as queries, keys and values."""
    transform = encoding_of(name, q.size(2), q.size(3), causal=True, **flags).transform
    return transform(q, q, q, transform.table(torch.tensor([positions])))


@pytest.mark.parametrize(
    "flags, dim, kept",
    [
        ({"rotary_pairing": "interleaved"}, 16, 8),
        ({"rotary_pairing": "half"}, 16, 8),
        ({"rotary_base": 500.0}, 16, 8),
        ({"rotary_fraction": 0.5}, 8, 4),
        ({"rotary_fraction": 0.125, "rotary_pairing": "half"}, 2, 1),
        ({"rotary_kept": 0.75}, 16, 6),
        ({"rotary_kept": 0.7}, 16, 5),
        ({"rotary_kept": 0.125, "rotary_pairing": "half"}, 16, 1),
        ({"rotary_fraction": 0.5, "rotary_kept": 0.5, "rotary_value": True}, 8, 2),
    ],
)
def test_rotary_is_the_rotation_matrix_of_equation_7(flags, dim, kept):
    """p-RoPE rotates only the pairs with the highest frequencies (Barbero et al. 2410.06205)."""
    x, positions = torch.randn(2, 4, 3, 16), [0, 7, 100, 4095]
    pairing, base = flags.get("rotary_pairing", "interleaved"), flags.get("rotary_base", 1e4)
    half = dim // 2
    halves = [*range(kept), *range(half, half + kept)]
    first = range(2 * kept) if pairing == "interleaved" else halves
    got = transformed("rotary", x, positions, **flags)
    for t, m in enumerate(positions):
        turn = torch.eye(16, dtype=torch.double)
        turn[:dim, :dim] = rotation_matrix(m, dim, base, pairing)
        rest = [n for n in range(16) if n not in first]
        turn[rest] = torch.eye(16, dtype=torch.double)[rest]
        want = x[:, t].double() @ turn.t()
        for y in got if flags.get("rotary_value") else got[:2]:
            torch.testing.assert_close(y[:, t].double(), want, atol=1e-6, rtol=1e-6)
    assert flags.get("rotary_value") or got[2] is x


@pytest.mark.parametrize("flags", [{}, {"rotary_pairing": "half", "xpos_gamma": 0.7}])
def test_products_of_xpos_by_hand(flags):
    """Re[q̄ k e^{i(n-m)θ}] ζ^{(n-m)/B}, summed over pairs of channels."""
    base, length, half, gamma = 4.0, 20, 4, flags.get("xpos_gamma", 0.4)
    x = torch.randn(1, length, 1, 2 * half)
    q, k, _ = transformed("xpos", x, list(range(length)), xpos_scale_base=base, **flags)
    got = torch.einsum("bthd,bshd->ts", q.double(), k.double())
    for n in range(length):
        for m in range(n + 1):
            want = 0.0
            for t in range(half):
                pair = [t, t + half] if "rotary_pairing" in flags else [2 * t, 2 * t + 1]
                a, b = (complex(*x[0, i, 0, pair].tolist()) for i in (n, m))
                angle = (m - n) / 10000 ** (t / half)
                turn = complex(math.cos(angle), math.sin(angle))
                decay = ((t / half + gamma) / (1 + gamma)) ** ((n - m) / base)
                want += decay * (a.conjugate() * b * turn).real
            assert got[n, m].item() == pytest.approx(want, abs=1e-5)


def test_bert_ad_keeps_all_four_correlations():
    """TUPE section 4.3: separate projections of words and positions, 1/sqrt(4d) on the sum."""
    encoding = encoding_of("bert_ad")
    transform = encoding.transform.double()
    q, k = random(1, 5, 4, 8), random(1, 5, 4, 8)
    got_q, got_k, _ = transform(q, k, k, transform.table(torch.arange(5)[None]))
    got = encoding.scale * torch.einsum("bthd,bshd->bhts", got_q, got_k)
    p_q, p_k = untied(transform, transform.positions.weight[:5])
    parts = [torch.einsum("thd,shd->hts", a, b) for a in (q[0], p_q) for b in (k[0], p_k)]
    torch.testing.assert_close(got[0], sum(parts) / (4 * 8) ** 0.5)


def test_fire_with_units_that_are_constant():
    module = encoding_of("fire", heads=H, causal=True).shared_bias["fire"].double()
    with torch.no_grad():
        module.weight_in[:3] = 0
        module.bias_in[:3] = torch.tensor([-1.0, 0.0, 2.0])
    x = torch.linspace(-1, 1, 9).double().view(1, 1, 9)
    hidden = (x[..., None] * module.weight_in + module.bias_in).relu()
    want = (hidden @ module.weight_out.t() + module.bias_out).permute(0, 3, 1, 2)
    torch.testing.assert_close(module.function(x), want)


def test_segments_of_dape_change_no_gradient(monkeypatch):
    source, target, gradients = sentences(2, 7), sentences(2, 6, seed=1), []
    model = tiny("dape").double()
    for segment in (1, 2**22):
        monkeypatch.setattr(dape, "_SEGMENT", segment)
        model.zero_grad()
        model(source, None, target)[0].pow(2).mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for one, whole in zip(*gradients):
        torch.testing.assert_close(one, whole, atol=1e-9, rtol=1e-6)


def test_dape_adapts_biases_in_float32_under_autocast():
    adapted = tiny("dape").decoder.layers[0].self_attn.position_terms["dape"].adapted
    products, static = torch.randn(2, 1, 4, 3, 5)
    want = adapted(products, static)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(adapted(products, static), want)


def test_the_penalty_of_kerple_stays_finite_in_float16():
    module = encoding_of("kerple", kerple_kernel="power").shared_bias["kerple"]
    torch.nn.init.constant_(module.shape, 9.0)  # |i - j|^2
    logits = module.by_distance(torch.tensor([0, 5000]))
    assert logits[:, 0].eq(0).all() and torch.isfinite(logits.half()).all()


# --- initial values


def uniform(bound):
    """The standard deviation of numbers drawn uniformly from -*bound* to *bound*."""
    return bound / math.sqrt(3)


#: how many rows tables have, and how many hidden units networks have
MANY = 40
#: encodings with parameters, and variants with different parameters
STARTED = "shaw transformer_xl deberta cope fox t5 tupe bert_ad fire dape".split()
STARTED += ["t5 products", "tupe free"]
#: standard deviations of initial values other than 0.02 (and 0 for biases, norms and scalars)
FIRST = {
    "shaw": {"key_table.weight": uniform(math.sqrt(6 / (2 * MANY + 1 + 64)))},  # Glorot's bound
    # PyTorch's bounds for linear layers: with one input, and with one input per hidden unit
    "fire": {
        **dict.fromkeys(("weight_in", "bias_in"), uniform(1.0)),
        **dict.fromkeys(("weight_out", "bias_out"), uniform(MANY**-0.5)),
    },
    "dape": {
        **dict.fromkeys(("first.weight", "first.bias"), uniform(16**-0.5)),
        **dict.fromkeys(("second.weight", "second.bias"), uniform(MANY**-0.5)),
    },
}


@pytest.mark.parametrize("name", STARTED)
def test_parameters_start_with_the_deviation_of_the_paper(name):
    name, _, form = name.partition(" ")
    sizes = ("shaw_max_distance", "cope_max_position", "t5_num_buckets", "fire_width", "dape_width")
    flags = {**dict.fromkeys(sizes, MANY), **({f"{name}_{form}": True} if form else {})}
    untied = {"has_cls": True, "untie_cls": True} if name == "tupe" else {}
    encoding = encoding_of(name, 8, 64, causal_only(name), shaw_values=True, **flags, **untied)
    modules = {**encoding.modules, "terms": encoding.build_content_bias()}
    for module in filter(None, modules.values()):
        for full, parameter in module.named_parameters():
            own = full.replace(f"{name}.", "").replace("value_", "key_")
            if own.startswith("bias."):  # KERPLE inside DAPE: see the next test
                continue
            same = own.endswith("bias") or own.startswith(("norm", "log_", "theta"))
            first = FIRST.get(name, {}).get(own, 0.0 if same else 0.02)
            if parameter.numel() < 200:
                assert (parameter - parameter.mean()).abs().max() <= 4 * first, full
            else:
                assert parameter.std().item() == pytest.approx(first, rel=0.15), full


@pytest.mark.parametrize("kernel, most", [("power", (1.0, 2.0)), ("logarithmic", (2.0, 1.0))])
def test_kerple_starts_as_the_released_code(kernel, most):
    """r1 and r2 are uniform, below 1 and 2 (power) or below 2 and 1 (logarithmic)."""
    module = encoding_of("kerple", heads=4096, kerple_kernel=kernel).shared_bias["kerple"]
    r2 = 2 * module.shape.sigmoid() if kernel == "power" else module.shape.exp()
    for values, bound in zip((module.scale.exp(), r2), most):
        assert values.min().item() == pytest.approx(0.01, rel=1e-4)
        assert 0.99 * bound < values.max() <= bound
        assert values.mean().item() == pytest.approx(bound / 2, rel=0.05)
