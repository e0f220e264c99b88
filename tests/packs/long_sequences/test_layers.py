"""Linformer, Reformer and mixed chunks against float64 loops, the first two against packages."""

import copy
import itertools

import pytest
import torch
from support.formulas import rotation_matrix
from support.helpers import skip_without_cpu_kernels, through_a_cache
from support.parts import attended_alone, encoding_of, kept, kernel_of, prepared_by

from fairseq_posenc.attention import Batch, Padding
from fairseq_posenc.packs.long_sequences.linformer import SHARING
from fairseq_posenc.packs.long_sequences.mixed_chunks import MixedChunkAttention

pytestmark = pytest.mark.formulas
H, D, C = 2, 8, 16


def layer_of(attention, encoding="none", heads=H, head_dim=D, longest=4096, dense=False, **flags):
    """A layer in float64; with *dense*, Reformer computes products of all pairs of tokens."""
    if attention == "mixed_chunks":
        flags = {"gau_key_size": D, "gau_normaliser": "squared_relu", "gau_chunk": 4, **flags}
        layer = MixedChunkAttention(C, 1, encoding_of(encoding, 1, D, **flags)).double().eval()
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        return layer
    if attention == "linformer":
        flags = {"linformer_size": 5, "linformer_length": longest, **flags}
    else:
        flags = {"reformer_buckets": 4, "reformer_rounds": 3, "reformer_chunk": 3, **flags}
    layer = kernel_of(attention, encoding, heads, head_dim, longest=longest, **flags).double()
    layer._few = lambda length: dense
    return layer


def linformer(layer, x, real, causal):
    """Eq. 7 with a loop over heads; only real tokens have keys and values."""
    if not real:
        return layer.out_proj(torch.zeros_like(x))
    q, k, v = layer.q_proj(x), layer.k_proj(x[real]), layer.v_proj(x[real])
    heads = []
    for h, part in enumerate(torch.arange(C).split(D)):
        e, f = (p[min(h, len(p) - 1)] for p in (layer.key_projection, layer.value_projection))
        keys, values = e[:, : len(real)] @ k[:, part], f[:, : len(real)] @ v[:, part]
        heads.append((q[:, part] @ keys.t() / D**0.5).softmax(-1) @ values)
    return layer.out_proj(torch.cat(heads, dim=-1))


def turns(layer, length):
    rotated = layer.encoding.transform is not None
    return [rotation_matrix(m, D) if rotated else torch.eye(D).double() for m in range(length)]


def sets_by_hand(layer, x, real):
    """The tokens that each real token can attend to in any round; *x* (T, D) is of one head."""
    found = {m: set() for m in real}
    for rotation in layer.hashing.rotations.double():
        places, counts = {}, {}
        for m in real:
            bucket = int(torch.cat((x[m] @ rotation, -x[m] @ rotation)).argmax())
            places[m] = (bucket, counts.get(bucket, 0) // layer.hashing.chunk)
            counts[bucket] = counts.get(bucket, 0) + 1
        for m, (bucket, chunk) in places.items():
            near = [(bucket, chunk), (bucket, chunk - 1)]
            found[m] |= {n for n in real if places[n] in near}
    return found


def reformer(layer, x, real, causal):
    """Attention of each token to the tokens that it can attend to in any round."""
    turn, out = turns(layer, len(x)), torch.zeros_like(x)
    q, v = layer.q_proj(x).view(-1, H, D), layer.v_proj(x).view(-1, H, D)
    scale = 1.0 if layer.encoding.options.reformer_released else D**-0.5
    for h in range(H):
        for m, seen in sets_by_hand(layer, q[:, h], real).items():
            seen = sorted(n for n in seen if (n <= m or not causal) and n != m) or [m]
            keys = [turn[n] @ q[n, h] / q[n, h].norm() for n in seen]
            logits = torch.stack([(turn[m] @ q[m, h]) @ k for k in keys]) * scale
            out[m, h * D : (h + 1) * D] = logits.softmax(0) @ v[seen, h]
    return layer.out_proj(out)


def mixed_chunks(layer, x, real, causal):
    """Attention in and between chunks, which begin at the first real token."""
    e, turn, out = 2 * C, turns(layer, len(x)), torch.zeros_like(x)
    silu = torch.nn.functional.silu(layer.in_proj(x))
    u, v, z = silu[:, :e], silu[:, e : 2 * e], silu[:, 2 * e :]
    chunk = {m: i // layer.chunk for i, m in enumerate(real)}
    options = layer.encoding.options
    length = options.gau_reference_length if options.gau_length == "reference" else 0

    def product(m, n, prefix=""):
        q, k = (
            z[i] * getattr(layer, f"{prefix}{name}_scale")
            + getattr(layer, f"{prefix}{name}_offset")
            for i, name in ((m, "q"), (n, "k"))
        )
        return (turn[m] @ q) @ (turn[n] @ k)

    for m in real:
        near = [n for n in real if chunk[n] == chunk[m] and (n <= m or not causal)]
        far = [n for n in real if chunk[n] < chunk[m] or not causal]
        mixed = torch.zeros(e).double()
        for n in near:
            mixed += product(m, n).relu() ** 2 / ((length or len(near)) * D) * v[n]
        for n in far:
            mixed += product(m, n, "linear_") / ((length or len(far)) * D**0.5) * v[n]
        out[m] = u[m] * mixed @ layer.out_proj.weight.t()
    return out + layer.out_proj.bias


REFERENCE = {"gau_length": "reference", "gau_reference_length": 9, "gau_offsets": True}
#: A reference function for the output of one sentence, and the settings of the layer under test.
CASES = [
    *((linformer, {"linformer_sharing": sharing}) for sharing in SHARING),
    *((reformer, {"encoding": "rotary", "dense": dense}) for dense in (False, True)),
    (reformer, {}),
    (reformer, {"encoding": "rotary", "reformer_released": True}),
    *((mixed_chunks, {"encoding": "rotary", "gau_chunk": n, "gau_offsets": True}) for n in (1, 4)),
    *((mixed_chunks, {"gau_chunk": chunk, **REFERENCE}) for chunk in (4, 20)),
]
every_case = pytest.mark.parametrize("formula, flags", CASES)


def paddings(length):
    """None, and masks for three sentences: one padded (left or right), one not, one all padding."""
    left, right, none = (torch.zeros(length, dtype=torch.bool) for _ in range(3))
    left[: length // 5], right[-(length // 3 + 1) :] = True, True
    return [None, *(torch.stack((each, none, ~none)) for each in (left, right))]


def cases_of(formula):
    length = 26 if formula is reformer else 11
    directions = [False] if formula is linformer else [False, True]
    return itertools.product([length], directions, paddings(length))


@every_case
@torch.no_grad()
def test_the_layer_is_its_formula(formula, flags):
    layer = layer_of(formula.__name__, **flags)
    for length, causal, mask in cases_of(formula):
        x = torch.randn(3, length, C).double()
        real = [[m for m in range(length) if mask is None or not mask[b, m]] for b in range(3)]
        want = torch.stack([formula(layer, *each, causal) for each in zip(x, real)])
        got = attended_alone(layer, x, causal, mask)  # zeros at padding, then projected
        # counts of mixed chunks are in float32
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


@every_case
def test_gradients_are_those_of_differences(formula, flags):
    """Only with padding on the left; in float64."""
    layer = layer_of(formula.__name__, **flags)
    for length, causal, mask in cases_of(formula):
        if mask is not None and mask[0, 0]:
            x = torch.randn(3, length, C).double().requires_grad_()

            def output(x, *_, causal=causal, mask=mask):  # gradcheck changes parameters in place
                return attended_alone(layer, x, causal, mask)

            assert torch.autograd.gradcheck(output, (x, *layer.parameters()), fast_mode=True)


@pytest.mark.parametrize("dense", [False, True])
@torch.no_grad()
def test_half_precision_of_reformer(dense):
    """Buckets are fixed, because rounding would move some tokens to other buckets."""
    layer, x = layer_of("reformer", dense=dense, reformer_chunk=32).float(), torch.randn(1, 2048, C)
    buckets = layer.hashing.buckets_of(layer.q_proj(x).view(1, -1, H, D).transpose(1, 2), None)
    layer.hashing.buckets_of = lambda *_: buckets
    want = attended_alone(layer, x, True)
    for dtype, tolerance in ((torch.float16, 0.02), (torch.bfloat16, 0.12)):
        skip_without_cpu_kernels(dtype)
        got = attended_alone(copy.deepcopy(layer).to(dtype), x.to(dtype), True)
        error = (got.float() - want).abs().max() / want.abs().max().clamp(min=1)
        assert got.dtype is dtype and error < tolerance


# --- Linformer


@torch.no_grad()
def test_the_package_of_linformer(golden):
    ref = golden("linformer")
    config, state, x = ref["config"], ref["state_dict"], ref["inputs"]["x"]
    sizes = {"longest": config["length"], "linformer_size": config["size"]}
    layer = layer_of("linformer", "none", config["heads"], x.size(2) // config["heads"], **sizes)
    for name in "qkv":
        getattr(layer, f"{name}_proj").weight.copy_(state[f"to_{name}.weight"])
        getattr(layer, f"{name}_proj").bias.zero_()
    layer.key_projection.copy_(state["proj_k"].t())
    layer.value_projection.copy_(state["proj_v"].t())
    layer.out_proj.weight.copy_(state["to_out.weight"])
    layer.out_proj.bias.copy_(state["to_out.bias"])
    out = attended_alone(layer, x.double())
    torch.testing.assert_close(out, ref["outputs"]["out"].double(), atol=1e-5, rtol=1e-5)


# --- Reformer


def test_neither_a_first_step_nor_a_mask_takes_the_memory_of_all_pairs():
    layer = layer_of("reformer", heads=1, reformer_rounds=1, reformer_chunk=16)
    x = torch.randn(1, 1024, D, dtype=torch.double)
    full, cached = (
        kept(
            lambda state=state: attended_alone(layer, x, True, incremental_state=state),
            *layer.parameters(),
        )
        for state in (None, {})
    )
    assert cached == pytest.approx(full, rel=0.05)  # all pairs take five times as much
    padding = torch.zeros(1, 1024, dtype=torch.bool)
    padding[0, :3] = True
    batch = Batch(x, 1024, Padding(padding, left=True), causal=True)
    sizes = [part.numel() for part in prepared_by(layer, batch).values() if torch.is_tensor(part)]
    assert max(sizes) == 1024


@pytest.mark.parametrize("dense", [False, True])
@torch.no_grad()
def test_the_package_of_reformer(golden, dense):
    ref = golden("reformer")
    (qk, v, rotations), config = ref["inputs"].values(), ref["config"]
    heads, length, size = qk.shape
    sizes = {f"reformer_{name}": config[name] for name in ("buckets", "rounds")}
    layer = layer_of("reformer", "none", heads, size, dense=dense, reformer_chunk=length, **sizes)
    layer.float().hashing.rotations.copy_(rotations[0].transpose(0, 1))
    buckets = layer.hashing.buckets_of(qk[None], None)
    assert torch.equal(buckets[0], ref["outputs"]["buckets"])
    both = torch.cat([x.transpose(0, 1).reshape(1, length, -1) for x in (qk, v)], dim=-1)
    one, none = torch.eye(heads * size), torch.zeros(heads * size, heads * size)
    for proj, weight in (layer.q_proj, [one, none]), (layer.v_proj, [none, one]):
        proj.weight = torch.nn.Parameter(torch.cat(weight, dim=1))
        proj.bias.zero_()
    layer.out_proj = torch.nn.Identity()
    got = attended_alone(layer, both, True).view(length, heads, size).transpose(0, 1)
    torch.testing.assert_close(got, ref["outputs"]["out"], atol=1e-5, rtol=1e-5)


# --- mixed chunks; tests/test_properties.py tests the outputs of their cache


@torch.no_grad()
def test_the_cache_of_mixed_chunks_does_not_grow():
    layer = layer_of("mixed_chunks")
    states = [through_a_cache(layer, torch.randn(2, n, C).double(), [n])[1] for n in (3, 11)]
    sizes = [[x.shape for x in next(iter(state.values())).values()][:5] for state in states]
    assert sizes[0] == sizes[1]
