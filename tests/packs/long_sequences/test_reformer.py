"""Reformer against loops in float64, a package, its cache, and later tokens."""

import pytest
import torch
from support.formulas import rotation_matrix
from support.helpers import skip_without_cpu_kernels
from support.parts import attended_alone, check_gradients, kept, kernel_of, prepared_by

from fairseq_posenc.attention import Batch, Padding

pytestmark = pytest.mark.formulas
H, D, T, CHUNK, ROUNDS = 2, 8, 26, 3, 3
PADDINGS = {
    "none": None,
    "left": torch.tensor([[True] * 5 + [False] * (T - 5), [False] * T, [True] * T]),
    "right": torch.tensor([[False] * (T - 9) + [True] * 9, [False] * T, [True] * T]),
}
either_direction = pytest.mark.parametrize("causal", [False, True])
either_way = pytest.mark.parametrize("dense", [False, True])


def layer_of(encoding="rotary", heads=H, head_dim=D, dense=False, **flags):
    """A layer that computes the products of all pairs, or of those within chunks."""
    flags = {"reformer_buckets": 4, "reformer_rounds": ROUNDS, "reformer_chunk": CHUNK, **flags}
    layer = kernel_of("reformer", encoding, heads, head_dim, longest=10000, **flags).double()
    layer._few = lambda length: dense
    return layer


def sets_by_hand(layer, x, real):
    """The tokens that each real token finds in any round; *x* (T, D) is of one head."""
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


def by_hand(layer, x, causal, padding, rotated, released=False):
    """Attention to the union of the rounds, by loops."""
    turn = [rotation_matrix(m, D) if rotated else torch.eye(D).double() for m in range(T)]
    out = torch.zeros_like(x)
    for b in range(len(x)):
        real = [m for m in range(T) if padding is None or not padding[b, m]]
        q, v = layer.q_proj(x[b]).view(T, H, D), layer.v_proj(x[b]).view(T, H, D)
        for h in range(H):
            for m, seen in sets_by_hand(layer, q[:, h], real).items():
                seen = sorted(n for n in seen if (n <= m or not causal) and n != m) or [m]
                keys = [turn[n] @ q[n, h] / q[n, h].norm() for n in seen]
                logits = torch.stack([(turn[m] @ q[m, h]) @ k for k in keys])
                logits = logits if released else logits / D**0.5
                out[b, m, h * D : (h + 1) * D] = logits.softmax(0) @ v[seen, h]
    return layer.out_proj(out)


@either_direction
@either_way
@pytest.mark.parametrize("padding", PADDINGS)
@torch.no_grad()
def test_the_layer_attends_to_what_shares_a_bucket(causal, dense, padding):
    mask, x = PADDINGS[padding], torch.randn(3, T, H * D).double()
    others = [("none", False), ("rotary", True)] if padding == "left" else []
    for encoding, released in [("rotary", False), *others]:
        layer = layer_of(encoding, dense=dense, reformer_released=released)
        got = attended_alone(layer, x, causal, mask)
        want = by_hand(layer, x, causal, mask, encoding == "rotary", released)
        torch.testing.assert_close(got, want)  # zeros at padding, before the last projection


@either_way
def test_a_token_alone_has_its_value(dense):
    """The value is exact in float32, and so is its gradient.

    Fused backward kernels subtract two sums of D products that differ by their rounding, which on
    some processors leaves 1e-7 instead of 0 for the queries.
    """
    layer = layer_of("none", dense=dense, reformer_buckets=64, reformer_rounds=2).float()
    q = torch.randn(1, H, 1, D).repeat(1, 1, T, 1).requires_grad_()
    v = torch.randn(1, H, T, D, requires_grad=True)
    alone = torch.arange(T).expand(1, H, ROUNDS - 1, T)  # each token in a bucket of its own
    codes = layer.hashing.codes(alone, None)
    k = torch.nn.functional.normalize(q, dim=-1)
    if dense:
        out = layer._dense(q, k, v, codes, codes, False)
    else:
        out = layer._chunked(q, k, v, alone, codes, False)
    assert torch.equal(out, v)
    slopes = torch.autograd.grad(out.sum(), [q, v])
    torch.testing.assert_close(slopes[0], torch.zeros_like(q), atol=1e-6, rtol=0)
    torch.testing.assert_close(slopes[1], torch.ones_like(v), atol=1e-6, rtol=0)


@torch.no_grad()
def test_some_keys_are_found_and_some_are_not():
    """Buckets hide some tokens; otherwise the test above would compare two softmax attentions."""
    layer, x = layer_of(), torch.randn(T, D).double()
    sizes = [len(seen) for seen in sets_by_hand(layer, x, list(range(T))).values()]
    assert max(sizes) < T and min(sizes) < T / 2 and max(sizes) > 2 * CHUNK


def test_a_first_step_with_a_cache_takes_the_memory_of_the_full_forward():
    layer = layer_of(heads=1, reformer_rounds=1, reformer_chunk=16)
    x = torch.randn(1, 1024, D, dtype=torch.double)
    parameters = tuple(layer.parameters())
    full, cached = (
        kept(
            lambda state=state: attended_alone(layer, x, True, incremental_state=state), *parameters
        )
        for state in (None, {})
    )
    assert cached == pytest.approx(full, rel=0.05)  # all pairs take five times as much


def test_no_mask_of_all_pairs_is_prepared():
    layer, length = layer_of("none"), 40
    padding = torch.zeros(2, length, dtype=torch.bool)
    padding[0, :3] = True
    batch = Batch(torch.zeros(2, length, H * D), length, Padding(padding, left=True), causal=True)
    sizes = [part.numel() for part in prepared_by(layer, batch).values() if torch.is_tensor(part)]
    assert max(sizes) == 2 * length


@either_direction
@either_way
def test_gradients(causal, dense):
    check_gradients(layer_of(dense=dense), torch.randn(3, T, H * D), causal, PADDINGS["left"])


@either_way
@torch.no_grad()
def test_the_package(golden, dense):
    ref = golden("reformer")
    (qk, v, rotations), config = ref["inputs"].values(), ref["config"]
    heads, length, size = qk.shape
    sizes = {f"reformer_{name}": config[name] for name in ("buckets", "rounds")}
    layer = layer_of("none", heads, size, dense, reformer_chunk=length, **sizes).float()
    layer.hashing.rotations.copy_(rotations[0].transpose(0, 1))
    buckets = layer.hashing.buckets_of(qk[None], None)
    assert torch.equal(buckets[0], ref["outputs"]["buckets"])
    both = torch.cat([x.transpose(0, 1).reshape(1, length, -1) for x in (qk, v)], dim=-1)
    one, none = torch.eye(heads * size), torch.zeros(heads * size, heads * size)
    for proj, weight in (layer.q_proj, [one, none]), (layer.v_proj, [none, one]):
        proj.weight = torch.nn.Parameter(torch.cat(weight, dim=1))
        proj.bias.zero_()
    layer.out_proj = torch.nn.Identity()
    out = attended_alone(layer, both, True)
    got = out.view(length, heads, size).transpose(0, 1)
    torch.testing.assert_close(got, ref["outputs"]["out"], atol=1e-5, rtol=1e-5)


@either_direction
@either_way
@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 0.02), (torch.bfloat16, 0.12)])
@torch.no_grad()
def test_half_precision(dtype, tolerance, causal, dense):
    """Both have the same buckets, since rounding alone would move some tokens to others."""
    skip_without_cpu_kernels(dtype)
    flags = {"reformer_buckets": 16, "reformer_chunk": 32, "reformer_rounds": 2, "dense": dense}
    layer, x = layer_of("none", **flags).float(), torch.randn(1, 1024, H * D)
    buckets = layer.hashing.buckets_of(layer.q_proj(x).view(1, -1, H, D).transpose(1, 2), None)
    want = attended_alone(layer, x, causal)
    layer = layer.to(dtype)
    assert layer.hashing.rotations.dtype is torch.float32
    layer.hashing.buckets_of = lambda *_: buckets
    got = attended_alone(layer, x.to(dtype), causal)
    assert got.dtype is dtype and (got.float() - want).abs().max() < tolerance
