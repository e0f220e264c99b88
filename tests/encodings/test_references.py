"""Every encoding against stored outputs of other implementations; see tests/golden."""

import math

import pytest
import torch
from support.formulas import Parts
from support.parts import encoding_of, places_of

from fairseq_posenc.attention.functional import additive_mask, attend, attend_with_weights
from fairseq_posenc.encodings.alibi import slopes
from fairseq_posenc.encodings.content import Content
from fairseq_posenc.encodings.t5 import relative_position_bucket

pytestmark = pytest.mark.formulas


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def close(got, want, tolerance=1e-5):
    torch.testing.assert_close(got.to(want.dtype), want, atol=tolerance, rtol=1e-5)


@pytest.mark.parametrize("heads", [4, 6, 8, 12])
def test_alibi(golden, heads):
    """BLOOM's bias differs from ours by a constant for each query."""
    out = golden("alibi")["outputs"]
    close(torch.tensor(slopes(heads)), out[f"slopes_h{heads}"].flatten())
    bias = encoding_of("alibi", heads=heads).shared_bias["alibi"]
    for length, name in ((9, f"bias_h{heads}"), (5, f"bias_h{heads}_last5")):
        close(bias(places_of(length, 9))[0], out[name])
    theirs = out[f"bloom_bias_h{heads}"]
    close(bias(places_of(9))[0].tril(), (theirs - theirs.transpose(1, 2)).tril())


@pytest.mark.parametrize("kind", ["bi", "uni"])
def test_t5_of_transformers(golden, kind):
    """The reference bias has only every 13th of 40 queries."""
    ref = golden("t5_bucket")
    for size in ((32, 128), (16, 64), (64, 256), (32, 20)):
        got = relative_position_bucket(ref["inputs"]["relative_position"], *size, kind == "uni")
        assert torch.equal(got, ref["outputs"]["{}_n{}_m{}".format(kind, *size)])
    flags = {"t5_num_buckets": 32, "t5_max_distance": 128, "causal": kind == "uni"}
    bias = encoding_of("t5", heads=2, **flags).shared_bias["t5"]
    bias.table.weight.copy_(ref["state_dict"]["relative_attention_bias.weight"])
    close(bias(places_of(40))[0, :, ::13], ref["outputs"][f"{kind}_bias"], 1e-6)


@pytest.mark.parametrize("released", [False, True])
def test_deberta_of_transformers(golden, released):
    ref = golden("deberta")
    flags = {"deberta_max_distance": 4, "deberta_released": released}
    parts = Parts("deberta", heads=2, head_dim=8, **flags)
    term, state = parts.terms["deberta"], ref["state_dict"]
    term.k_proj.weight.copy_(state["pos_proj.weight"])
    term.q_proj.weight.copy_(state["pos_q_proj.weight"])
    parts.tables["deberta"].table.weight.copy_(state["rel_embeddings"])
    q, k = (ref["inputs"][name].double() for name in "qk")
    want = ref["outputs"]["c2p"] + ref["outputs"]["p2c_released" if released else "p2c"]
    close(parts.logits(q, k, parts.encoding.scale), want)


def test_cope_of_x_transformers(golden):
    ref = golden("cope")
    most = ref["config"]["cope_max_position"]
    parts = Parts("cope", heads=2, head_dim=8, causal=True, cope_max_position=most)
    parts.terms["cope"].table.weight.copy_(ref["state_dict"]["e"])
    q, k = (ref["inputs"][name].double() for name in "qk")
    close(parts.logits(q, k, 8**-0.5).tril() * 8**0.5, ref["outputs"]["logits"])


def test_dape_of_its_authors(golden):
    ref = golden("dape")
    flags = {k: ref["config"][k] for k in ("heads", "dape_bias", "dape_width")}
    parts = Parts("dape", causal=True, **flags)
    for name, value in ref["state_dict"].items():
        parts.terms["dape"].get_parameter(name).copy_(value)
    products = ref["inputs"]["products"].double()
    keys = torch.eye(products.size(-1)).double()[None, None]
    close((products + parts.logits(products, keys)).tril(), ref["outputs"]["logits"])


def test_fox_of_its_authors(golden):
    """The reference is a kernel in half precision, within 5e-4 of the formula in float64."""
    ref = golden("fox")
    size = ref["config"]["head_dim"]
    parts = Parts("fox", causal=True, heads=ref["config"]["heads"], head_dim=size)
    q, k, v, gates = (x.double() for x in ref["inputs"].values())
    logits = parts.logits(q, k, key_states={"fox_log_gates": gates.sigmoid().log().unsqueeze(-1)})
    hidden = torch.full((q.size(2),) * 2, -math.inf, dtype=torch.double).triu(1)
    got = attend(q, k, v, size**-0.5, logits + hidden)
    torch.testing.assert_close(got.float(), ref["outputs"]["out"], atol=1e-3, rtol=0)


def assert_attends_as(ref, case, parts, length):
    """Compare outputs and attention weights with fairseq2's, for real queries and 11 keys."""
    inputs = {name: ref["inputs"][name] for name in "qkv"}  # (B, T, H, D)
    lengths = ref["inputs"]["key_lens"] if "padded" in case else torch.full((3,), 11)
    mask = additive_mask(
        length, 11, "causal" in case, torch.arange(11) >= lengths[:, None], inputs["q"]
    )
    q, k, v = (x.transpose(1, 2) for x in inputs.values())
    terms = parts.terms.float()
    content = Content(None, q, k, parts.encoding.scale, places_of(length, 11))
    logits = terms(content, parts.encoding.distance_vectors(content.places, q), {})
    more = (lambda w: terms.relative_values(content, w)) if terms.needs_weights else None
    scale = parts.encoding.scale
    out, weights = attend_with_weights(q, k, v, scale, mask + logits, relative_values=more)
    real = (torch.arange(length) < lengths[:, None])[..., None, None]  # queries padded as keys
    close(out.transpose(1, 2) * real, ref["outputs"][case] * real)
    real = real.transpose(1, 2)
    close(weights * real, ref["outputs"][case + "_weights"] * real)


@pytest.mark.parametrize(
    "file, case",
    [("shaw_values", c) for c in ("full", "padded", "causal", "causal_padded")]
    + [("shaw_cached_query", c) for c in ("full", "causal")],
)
def test_shaw_of_fairseq2(golden, file, case):
    ref = golden(file)
    flags = {"shaw_max_distance": 4, "shaw_values": True, "causal": "causal" in case}
    parts = Parts("shaw", heads=2, head_dim=8, **flags)
    term = parts.terms["shaw"]
    # our causal stacks have no vectors for later keys
    for table, name in ((term.key_table, "k"), (term.value_table, "v")):
        table.weight.copy_(ref["state_dict"][f"rel_{name}_embed.weight"][: len(table.weight)])
    assert_attends_as(ref, case, parts, ref["inputs"]["q"].size(1))


@pytest.mark.parametrize("case", ["full", "padded", "causal"])
def test_transformer_xl_of_fairseq2(golden, case):
    ref = golden("transformer_xl")
    parts = Parts("transformer_xl", heads=2, head_dim=8)
    term, state = parts.terms["transformer_xl"], ref["state_dict"]
    term.proj.weight.copy_(state["r_proj.weight"])
    term.u.copy_(state["u_bias"].unsqueeze(1))
    term.v.copy_(state["v_bias"].unsqueeze(1))
    close(parts.tables["transformer_xl"](torch.arange(-10, 11)), ref["outputs"]["r_table"])
    assert_attends_as(ref, case, parts, 11)


# --- rotations: interleaved as in RoFormer, half as in Llama


def rotated(x, positions, **flags):
    """Rotate x (B, H, T, D) by *positions* (1 or B, T)."""
    rotation = encoding_of("rotary", heads=3, head_dim=x.size(-1), **flags).transform
    return rotation.rotate(x.transpose(1, 2), rotation.table(positions)).transpose(1, 2)


@pytest.mark.parametrize("name", ["q", "k"])
def test_rotary_of_transformers(golden, name):
    roformer, llama = golden("rotary_hf_roformer"), golden("rotary_hf_llama")
    positions = torch.arange(roformer["inputs"]["q"].size(2))[None]
    for ref, key, where, flags in (
        (roformer, name, positions, {}),
        (roformer, f"{name}_past3", positions + 3, {}),
        (llama, name, llama["inputs"]["position_ids"], {"rotary_pairing": "half"}),
    ):
        close(rotated(ref["inputs"][name], where, **flags), ref["outputs"][key])


@pytest.mark.parametrize(
    "case, flags, offset",
    [
        ("full", {}, 0),
        ("offset5", {}, 5),
        ("partial8", {"rotary_fraction": 0.5}, 0),
        ("theta500", {"rotary_base": 500.0}, 0),
        ("linear2", {"rotary_scaling": "linear", "rotary_scaling_factor": 2.0}, 0),
        ("ntk4", {"rotary_scaling": "ntk", "rotary_scaling_factor": 4.0}, 0),
        ("cached_q", {}, 6),
        ("cached_k", {}, 0),
    ],
)
def test_rotary_of_rotary_embedding_torch(golden, case, flags, offset):
    ref = golden("rotary_rt")
    x = ref["inputs"]["k" if case == "cached_k" else "q"]
    x = x[:, :, -3:] if case == "cached_q" else x
    got = rotated(x, torch.arange(x.size(2))[None] + offset, **flags)
    close(got, ref["outputs"][case])


def test_xpos_of_x_transformers(golden):
    ref = golden("xpos")
    encoding = encoding_of("xpos", heads=2, head_dim=8, causal=True, xpos_scale_base=16.0)
    q, k = (ref["inputs"][name].transpose(1, 2) for name in "qk")
    table = encoding.transform.table(torch.arange(q.size(1))[None])
    got_q, got_k, _ = encoding.transform(q, k, k, table)
    close(torch.einsum("bthd,bshd->bhts", got_q, got_k).tril(), ref["outputs"]["products"], 1e-4)
