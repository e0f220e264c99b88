"""The cache of keys and values between decoding steps, and joint projections at inference."""

import copy

import pytest
import torch
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from support.helpers import build, sentences
from support.parts import storage_of

from fairseq_posenc.attention import base, cache
from fairseq_posenc.attention.cache import append_to_cache, reorder_cache

pytestmark = pytest.mark.properties

NAMES = ["prev_key", "prev_value", "prev_content_key"]


class Layer(FairseqIncrementalState):
    """The part of an attention layer that the cache uses."""


def new_tokens(rows, tokens, draw):
    sizes = [4, 6, 4]  # values of gated units are wider
    return [torch.randn(rows, 2, tokens, size, generator=draw) for size in sizes]


def append(layer, state, parts):
    got = append_to_cache(layer, dict(zip(NAMES, parts)), state)
    saved = layer.get_incremental_state(state, "attn_state")
    assert all(saved[name] is x for name, x in got.items())
    assert all(dense(x) for x in got.values())
    return [got[name] for name in NAMES]


def dense(x):
    """Whether vectors in (B, H, S, D) are adjacent, and B and H can be merged without a copy."""
    return x.stride()[2:] == (x.size(3), 1) and x.stride(0) == x.size(1) * x.stride(1)


@pytest.mark.parametrize("seed", [0, 3])
def test_any_course_of_a_search_equals_concatenation(seed, monkeypatch):
    """Steps add 1 to 3 tokens; rows are reordered, dropped and added; tensors may be replaced."""
    if seed == 3:  # more hypotheses than the cache tracks
        monkeypatch.setattr(cache, "_TRACKED", 0)
    draw, layer, state = torch.Generator().manual_seed(seed), Layer(), {}
    rows, want = 6, None
    for step in range(150):
        tokens = int(torch.randint(1, 4, (1,), generator=draw))
        parts = new_tokens(rows, tokens, draw)
        want = parts if want is None else [torch.cat(x, 2) for x in zip(want, parts)]
        got = append(layer, state, parts)
        assert all(torch.equal(x, y) for x, y in zip(got, want))
        if step % 40 == 39:
            saved = layer.get_incremental_state(state, "attn_state")
            saved.update({name: x.clone() for name, x in saved.items()})
        if step % 5:
            now, rows = rows, 4 + step % 3 if step % 30 == 0 else rows
            order = torch.randint(now, (rows,), generator=draw)
            reorder_cache(layer, state, order)
            want = [x.index_select(0, order) for x in want]
            saved = layer.get_incremental_state(state, "attn_state")
            assert all(torch.equal(saved[name], x) for name, x in zip(NAMES, want))


def test_memory_grows_with_the_length_once():
    draw, layer, state = torch.Generator().manual_seed(0), Layer(), {}
    addresses = set()
    for length in range(1, 4097):
        k, v, content = append(layer, state, new_tokens(2, 1, draw))
        addresses.add(k.data_ptr())
        memory = {storage_of(x).data_ptr(): storage_of(x) for x in (k, v, content)}
        used = sum(storage.nbytes() for storage in memory.values()) / k.element_size()
        assert used <= (1.25 * length + 64) * sum(2 * 2 * x.size(3) for x in (k, v, content))
    assert len(addresses) <= 20  # each new address means a copy of all tokens


@pytest.fixture
def moved(monkeypatch):
    """A list with the number of tokens in each ``index_select`` of tensors (n, B, H, S, D)."""
    numbers, select = [], torch.index_select

    def noted(x, dim, index, out):
        numbers.append(x.size(3))
        return select(x, dim, index, out=out)

    monkeypatch.setattr(torch, "index_select", noted)
    return numbers


def test_a_reorder_moves_only_what_hypotheses_do_not_share(moved):
    draw, layer, state = torch.Generator().manual_seed(0), Layer(), {}
    append(layer, state, new_tokens(3, 10, draw))
    reorder_cache(layer, state, torch.tensor([1, 1, 1]))  # now all three are equal
    append(layer, state, new_tokens(3, 1, draw))
    before = append(layer, state, new_tokens(3, 1, draw))[0]
    moved.clear()
    reorder_cache(layer, state, torch.tensor([0, 2, 1]))
    assert moved == [2, 2]  # one move for both kinds of keys, one for values
    moved.clear()
    reorder_cache(layer, state, torch.tensor([0, 1, 2]))
    assert not moved
    after = layer.get_incremental_state(state, "attn_state")["prev_key"]
    assert after.data_ptr() == before.data_ptr()


def test_hypotheses_that_share_nothing_move_in_memory_that_layers_share(moved):
    """Memory kept free for further tokens is not copied; three layers share four memory blocks."""
    draw, layers, state = torch.Generator().manual_seed(0), [Layer() for _ in range(3)], {}
    for layer in layers:
        append(layer, state, new_tokens(3, 10, draw))
    keys = []
    for _ in range(5):
        for layer in layers:
            reorder_cache(layer, state, torch.tensor([1, 2, 0]))
            keys.append(layer.get_incremental_state(state, "attn_state")["prev_key"])
    assert set(moved) == {10}
    assert len({storage_of(k).data_ptr() for k in keys}) == 4


def test_copies_of_a_state_go_on_independently():
    draw, layer, state = torch.Generator().manual_seed(0), Layer(), {}
    append(layer, state, new_tokens(3, 5, draw))
    copies = [dict(state), copy.deepcopy(state), state]
    parts = [new_tokens(3, 1, draw) for _ in copies]
    first = [append(layer, *both)[0].clone() for both in zip(copies, parts)]
    reorder_cache(layer, copies[1], torch.tensor([2, 1, 0]))
    for one, want, (k, _, _) in zip(copies, first, parts):
        assert torch.equal(want[:, :, -1:], k)
        got = layer.get_incremental_state(one, "attn_state")["prev_key"]
        assert torch.equal(got.flip(0) if one is copies[1] else got, want)


def test_gradients_pass_through_the_cache():
    layer, state = Layer(), {}
    parts = [x.requires_grad_() for x in new_tokens(2, 3, torch.Generator().manual_seed(0))]
    append(layer, state, parts)
    append(layer, state, parts)[0].sum().backward()
    assert torch.equal(parts[0].grad, torch.full_like(parts[0], 2.0))


# --- projections


@pytest.fixture
def products(monkeypatch):
    """A list with an entry for every joint product; joining is enabled as on a GPU."""
    calls, current = [], base.JoinedParameters.current

    def noted(attention, parts):
        whole = current(attention, parts)
        calls.extend([1] if whole else [])
        return whole

    monkeypatch.setattr(base, "launch_bound", lambda x: not torch.is_grad_enabled())
    monkeypatch.setattr(base.JoinedParameters, "current", noted)
    return calls


def prepared(*flags):
    model = build("roformer_tiny", *flags)
    model.make_generation_fast_()
    return model


def logits(model):
    tokens = sentences(2, 7)
    with torch.no_grad():
        return model(tokens, None, tokens)[0]


def replace_memory(model, other):
    for mine, its in zip(model.parameters(), other.parameters()):
        mine.data = its.data.clone()


def replace_parameters(model, other):
    for mine, its in zip(model.modules(), other.modules()):
        mine._parameters.update(its._parameters)


CHANGES = {
    "load": (lambda model, other: model.load_state_dict(other.state_dict()), 4),  # 2 + 2 layers
    "cast and load": (
        lambda model, other: model.double().load_state_dict(other.double().state_dict()),
        4,
    ),
    "memory": (replace_memory, 0),
    "parameters": (replace_parameters, 0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_joined_weights_are_never_stale(products, change):
    model, other = prepared(), build("roformer_tiny").eval()
    assert list(model.state_dict()) == list(other.state_dict())
    assert not torch.allclose(logits(model), logits(other))
    change, joined = CHANGES[change]
    change(model, other)
    products.clear()
    torch.testing.assert_close(logits(model), logits(other), atol=1e-6, rtol=1e-5)
    assert len(products) == joined


def test_a_prepared_layer_can_be_trained(products):
    """With gradients, projections are applied separately; updates reach the joint weight."""
    flags = ["--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0"]
    model, plain = prepared(*flags), build("roformer_tiny", *flags)
    model.load_state_dict(plain.state_dict())
    tokens = sentences(2, 7)
    for one in (model, plain):
        torch.nn.Module.train(one)
        one(tokens, None, tokens)[0].square().sum().backward()
        torch.optim.SGD(one.parameters(), 0.01).step()
        torch.nn.Module.eval(one)
    assert products == []
    torch.testing.assert_close(logits(model), logits(plain), atol=1e-5, rtol=1e-4)
    assert len(products) == 4


def test_hooks_and_other_layers_are_not_passed_by(products):
    model = prepared()
    attention = model.encoder.layers[0].self_attn
    seen = []
    handle = attention.k_proj.register_forward_hook(lambda *args: seen.append(1))
    logits(model)
    assert seen and len(products) == 3
    handle.remove()
    noisy = build("roformer_tiny", "--quant-noise-pq", "0.1", "--quant-noise-pq-block-size", "8")
    noisy.make_generation_fast_()
    assert not noisy.encoder.layers[0].self_attn.joined
