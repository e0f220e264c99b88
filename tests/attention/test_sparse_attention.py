"""Sparse attention against dense attention with the pattern as a mask, in float64."""

import functools
import math

import pytest
import torch
from support.helpers import PAD, sentences, tiny
from support.parts import attended_alone, kept, places_of, prepared_by, storage_of
from support.sparse_layers import KERNELS, golden_layer, registered

from fairseq_posenc.attention import Batch, Padding, by_blocks
from fairseq_posenc.basics.versions import HAS_SDPA

pytestmark = pytest.mark.formulas

B, S = 3, 45
every_kernel = pytest.mark.parametrize("kernel", KERNELS)
#: kernels in which some tokens see all tokens and are seen by all tokens
GLOBAL = [name for name in ("global", "random") if name in KERNELS]
either_direction = pytest.mark.parametrize("causal", [False, True])


def stack_of(kernel, causal, encoding="rotary", *flags):
    """The decoder, if *causal*, or the encoder of a model in float64."""
    torch.manual_seed(0)
    model = tiny(encoding, *KERNELS[kernel], *flags).double()
    for name, parameter in model.named_parameters():
        if "position" in name or "global" in name:  # so that no two projections are alike
            torch.nn.init.normal_(parameter, std=0.3)
    return model.decoder if causal else model.encoder


def in_window(layer, i, j, causal):
    distance = j - i
    if distance % layer.dilation:
        return False
    if causal:
        return -layer.before * layer.dilation <= distance <= 0
    return abs(distance) <= layer.before // 2 * layer.dilation


def drawn_blocks(layer, block, blocks, causal):
    """The random key blocks of a query block, drawn one by one, and the blocks of its window."""
    side = 1
    window = range(block - 2 * side, block + 1) if causal else range(block - side, block + side + 1)
    left = [n for n in range(layer.first, block if causal else blocks) if n not in window]
    drawn = []
    for share in layer.random_blocks[block].tolist():
        if left:
            drawn.append(left.pop(share * len(left) >> 31))
    return drawn, window


@functools.lru_cache(maxsize=None)
def pattern(layer, length, causal):
    """Mask (T, T): True where query i of *length* real tokens attends to key j."""
    seen = torch.zeros(length, length, dtype=torch.bool)
    for i in range(length):
        for j in range(length):
            if hasattr(layer, "windows"):
                near = in_window(layer, i, j, causal)
            else:
                blocks = -(-length // layer.size)
                drawn, window = drawn_blocks(layer, i // layer.size, blocks, causal)
                near = j // layer.size in [*drawn, *window]
            whole = j < layer.global_tokens or (i < layer.global_tokens and not causal)
            seen[i, j] = (near or whole) and not (causal and j > i)
    return seen


def softmax(q, k, v, logits, seen):
    logits = (q @ k.transpose(-2, -1) + logits).masked_fill(~seen, -math.inf)
    return torch.softmax(logits, -1) @ v


def dense(stack, index, x, causal):
    """A layer's output for one sentence (1, n, C) without padding, by dense attention."""
    layer, length = stack.layers[index].self_attn, x.size(1)
    encoding, places = layer.encoding, torch.arange(x.size(1)).unsqueeze(0)
    table = {"table": encoding.transform and encoding.transform.table(places, index)}
    logits = 0.0
    if encoding.shared_bias is not None:
        logits = encoding.shared_bias(places_of(length))
    seen = pattern(layer, length, causal)
    q, k, v = layer.project(x, table)[:3]
    out = softmax(q * encoding.scale, k, v, logits, seen)
    first = min(layer.global_tokens, length)
    if getattr(layer, "global_q_proj", None) is not None:
        own = [getattr(layer, f"global_{name}_proj") for name in "qkv"]
        q, k, v = layer.project(x, table, projections=own)[:3]
        own = softmax(q * encoding.scale, k, v, logits, seen)
        out = torch.cat((own[:, :, :first], out[:, :, first:]), dim=2)
    return layer.out_proj(out.transpose(1, 2).flatten(2))


def sparse_output(stack, index, x, mask, causal):
    padding = Padding(mask, left=bool(mask[:, 0].any()), empty=bool(mask.all(1).any()))
    layer = stack.layers[index].self_attn
    return layer(x, **prepared_by(layer, Batch(x, x.size(1), padding, causal)))


@either_direction
@pytest.mark.parametrize(
    "kernel, encoding",
    [(kernel, "rotary") for kernel in KERNELS]
    + [(kernel, e) for kernel in GLOBAL for e in ("t5", "alibi", "fire", "tupe")]
    + [("dilated", "tupe")],
)
@torch.no_grad()
def test_equals_dense_attention_with_the_pattern_as_a_mask(kernel, encoding, causal):
    stack = stack_of(kernel, causal, encoding)
    x = torch.randn(B, S, 32, dtype=torch.float64)
    mask = torch.zeros(B, S, dtype=torch.bool)
    mask[0, :7] = True  # one sentence is padded left, one right, one not
    mask[1, 33:] = True
    for index in (0, 1):
        got = sparse_output(stack, index, x, mask, causal)
        for row in range(B):
            real = ~mask[row]
            want = dense(stack, index, x[row, real].unsqueeze(0), causal)
            # angles of rotary are in float32
            atol = 1e-6 if "rotary" in encoding else 1e-12
            torch.testing.assert_close(got[row, real], want[0], atol=atol, rtol=0)


@every_kernel
@either_direction
@torch.no_grad()
def test_short_texts_and_rows_of_padding(kernel, causal):
    stack = stack_of(kernel, causal, "t5")
    for length in (1, 2, 5, 17):
        x = torch.randn(1, length, 32, dtype=torch.float64)
        mask = torch.zeros(2, length, dtype=torch.bool)
        mask[1] = True
        got = sparse_output(stack, 0, x.expand(2, -1, -1), mask, causal)
        torch.testing.assert_close(got[:1], dense(stack, 0, x, causal), atol=1e-9, rtol=0)
        bias = stack.layers[0].self_attn.out_proj.bias
        assert torch.equal(got[1], bias.expand_as(got[1]))  # zeros, projected


@pytest.mark.parametrize("kernel", GLOBAL)
@either_direction
def test_gradients_of_all_parameters(kernel, causal):
    small = ["--encoder-embed-dim", "8", "--decoder-embed-dim", "8"]
    small += ["--encoder-attention-heads", "2", "--decoder-attention-heads", "2"]
    stack = stack_of(kernel, causal, "rotary+t5", *small)
    layer, mask = stack.layers[0].self_attn, torch.zeros(2, 22, dtype=torch.bool)
    mask[0, :3] = True
    x = torch.randn(2, 22, 8, dtype=torch.float64, requires_grad=True)
    parameters = [x, *layer.parameters(), *stack.position_bias.parameters()]

    def output(*_):
        return sparse_output(stack, 0, x, mask, causal)[~mask]

    assert torch.autograd.gradcheck(output, parameters, fast_mode=True)
    output().sum().backward()
    assert all(parameter.grad is not None for parameter in parameters)


@every_kernel
@either_direction
def test_parts_of_a_long_text_are_processed_as_the_whole(kernel, causal, monkeypatch):
    stack, length = stack_of(kernel, causal, "t5"), 150
    x = torch.randn(2, length, 32, dtype=torch.float64, requires_grad=True)
    mask = torch.zeros(2, length, dtype=torch.bool)
    mask[0, :3] = True
    found = []
    for elements in (by_blocks.SEGMENT, 1):
        monkeypatch.setattr(by_blocks, "SEGMENT", elements)
        out = sparse_output(stack, 0, x, mask, causal)
        weights = [p for p in stack.layers[0].self_attn.parameters() if p.requires_grad]
        found.append([out, *torch.autograd.grad(out.sin().sum(), [x, *weights])])
    torch.testing.assert_close(*found, atol=1e-11, rtol=0)


@pytest.mark.parametrize("kernel", GLOBAL)
@either_direction
def test_parts_have_the_same_dropout_in_both_passes(kernel, causal, monkeypatch):
    monkeypatch.setattr(by_blocks, "SEGMENT", 1)
    stack = stack_of(kernel, causal, "t5", "--attention-dropout", "0.3").train()
    x = torch.randn(2, 40, 32, dtype=torch.float64, requires_grad=True)

    def output(x):
        torch.manual_seed(1)
        out = sparse_output(stack, 0, x, torch.zeros(2, 40, dtype=torch.bool), causal)
        drawn.append(torch.rand(1))
        return out

    drawn = []
    assert torch.autograd.gradcheck(output, [x], fast_mode=True)
    output(x).sum().backward()
    assert torch.rand(1) not in drawn  # backward does not rewind the generator
    assert len(set(map(float, drawn))) == 1


@every_kernel
@either_direction
def test_gradients_of_padding_are_numbers(kernel, causal, monkeypatch):
    monkeypatch.setattr(by_blocks, "SEGMENT", 1)
    stack = stack_of(kernel, causal).float()
    x = torch.randn(3, S, 32, requires_grad=True)
    mask = torch.zeros(3, S, dtype=torch.bool)
    mask[0], mask[1, :17] = True, True
    sparse_output(stack, 0, x, mask, causal).sin().sum().backward()
    assert torch.isfinite(x.grad).all()
    assert torch.equal(x.grad[0], torch.zeros_like(x.grad[0]))


@every_kernel
@either_direction
@pytest.mark.parametrize("elements", [1, 10**6])
@torch.no_grad()
def test_an_overflow_stays_in_its_sentence(kernel, causal, elements, monkeypatch):
    """A sentence's first and last block are next to other sentences' blocks, but ignore them."""
    monkeypatch.setattr(by_blocks, "SEGMENT", elements)
    stack = stack_of(kernel, causal)
    x, mask = torch.randn(3, S, 32, dtype=torch.float64), torch.zeros(3, S, dtype=torch.bool)
    x[1] = math.inf
    out = sparse_output(stack, 0, x, mask, causal)
    assert torch.isnan(out[1]).all() and torch.isfinite(out[::2]).all()


@registered("window", "blocks", "random")
@either_direction
def test_keeps_what_fused_softmax_attention_keeps(kernel, causal, monkeypatch):
    """Gathering keys for every block would take several times the memory of the keys."""
    if not HAS_SDPA:
        pytest.skip("this PyTorch has no fused attention")
    monkeypatch.setattr(by_blocks, "SEGMENT", 8192)
    wide = ["--encoder-embed-dim", "128", "--decoder-embed-dim", "128"]
    x, mask, found = torch.randn(1, 512, 128, requires_grad=True), torch.zeros(1, 512).bool(), []
    for model in tiny("rotary", *wide), tiny("rotary", *KERNELS[kernel], *wide):
        stack = model.float().decoder if causal else model.float().encoder
        run = functools.partial(sparse_output, stack, 0, x, mask, causal)
        found.append(kept(run, *stack.parameters(), *stack.buffers()))
    assert found[1] <= 1.2 * found[0]


@every_kernel
@torch.no_grad()
def test_cached_decoding_equals_the_full_forward(kernel):
    """With prompts of different lengths, steps of one or several tokens, and reordered beams."""
    decoder = stack_of(kernel, True, "t5")
    target = sentences(4, S)
    target[0, :5] = PAD
    for steps in ([1] * 24, [20, 1, 1, 1, 9] + [1] * 13):
        state, end = {}, 0
        for number in steps:
            end += number
            out, _ = decoder(target[:, :end], incremental_state=state, features_only=True)
            if number > 1 or end % 10 == 0:
                full, _ = decoder(target[:, :end], features_only=True)
                real = target[:, end - number : end].ne(PAD)
                full = full[:, end - number :]
                torch.testing.assert_close(out[real], full[real], atol=1e-9, rtol=0)
            if end % 3 == 0:
                order = torch.randperm(4) if end % 2 else torch.tensor([0, 0, 2, 3])
                target = target[order]
                decoder.reorder_incremental_state_scripting(state, order)


@torch.no_grad()
def test_the_cache_of_local_attention_is_of_constant_size():
    model = tiny("rotary", *KERNELS["global"]).float()
    tokens, state, sizes = sentences(2, 520), {}, []
    for end in range(400, 520):
        model.decoder(tokens[:, :end], incremental_state=state, features_only=True)
        attention = model.decoder.layers[0].self_attn
        saved = attention.get_incremental_state(state, "attn_state")["prev_key"]
        assert saved.size(2) in (34, 35)
        sizes.append(storage_of(saved).nbytes())
    assert max(sizes) <= 4 * 2 * (32 + 32) * (35 + 64)  # keys and values lie side by side
    assert len(set(sizes)) <= 2


# --- other implementations


@torch.no_grad()
def test_longformer_of_transformers(golden):
    ref = golden("longformer")
    x, layer = ref["inputs"]["x"], golden_layer(ref, "local")
    mask = torch.arange(x.size(1)) >= ref["inputs"]["lengths"].unsqueeze(1)
    out = attended_alone(layer, x, padding=mask).masked_fill(mask.unsqueeze(-1), 0.0)
    torch.testing.assert_close(out, ref["outputs"]["out"], atol=1e-5, rtol=1e-5)
