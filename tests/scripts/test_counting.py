"""Counts of a GPU's operations are exact, so tests can assert limits for them."""

import copy
import functools

import pytest
import torch
from support.commands import shape
from support.helpers import OTHER_LAYERS, TINY, build, last_token, padded_batch, tiny_in_blocks

from counting import count
from fairseq_posenc.basics.versions import HAS_SDPA
from fairseq_posenc.encodings import ENCODINGS
from fused import GPUS, fused_kernel

pytestmark = pytest.mark.properties

if not HAS_SDPA:
    pytest.skip("this PyTorch has no fused attention to count", allow_module_level=True)


def count_training(model, source, target):
    def step():
        model.zero_grad()
        model(source, None, target)[0].float().sum().backward()

    step()  # computes constants
    return count(step, model.parameters())


def count_token(model, source, target):
    return count(last_token(model, source, target), model.parameters())


def choices(counts):
    """Yield the kernel that each GPU would choose for each attention call in half precision."""
    for call in counts.attention:
        mask = call.mask and (torch.float16, *call.mask[1:])
        for gpu in GPUS:
            yield fused_kernel(call._replace(dtype=torch.float16, mask=mask), gpu)


#: The most operations per token, relative to stock, for models that MOST_OF does not name.
MOST = 1.25
MOST_OF = {
    "scaled_squared_relu:t5": 1.5,
    "scaled:rotary+cope": 1.5,
    "gated:rotary+transformer_xl": 1.7,
    "gated:learned+deberta": 1.6,
    "bigbird:t5": 2.9,
    "reformer:rotary": 2.0,
    "mixed_chunks:rotary": 3.1,
}


def operations(counts):
    return sum(counts.operations.values())


@functools.lru_cache(maxsize=None)
def operations_of_stock():
    return operations(count_token(build("transformer", *TINY), *padded_batch()))


#: encodings and layers; layers with sinusoidal or learned positions, which do less, are left out
COUNTED = sorted(ENCODINGS) + ["tupe+t5"]
COUNTED += [name for name in OTHER_LAYERS if not name.endswith((":sinusoidal", ":learned"))]


@pytest.mark.parametrize("name", COUNTED)
def test_one_wait_a_step_none_a_token_and_fused_attention(name):
    """Lengths are odd, so a mask with unaligned rows would be copied, and the test would fail."""
    model, (source, target) = tiny_in_blocks(name).train(), padded_batch()
    trained = count_training(model, source, target)
    token = count_token(model, source, target)
    assert sum(trained.waits.values()) == 1 and not token.waits
    assert trained.copies == token.copies == 0
    assert operations(token) <= MOST_OF.get(name, MOST) * operations_of_stock()
    for counts in (trained, token):
        assert all(choice.kernel for choice in choices(counts))
        assert not any(choice.copies_mask for choice in choices(counts))
        # encodings of values need attention weights
        assert not counts.explicit or any(vars(m).get("needs_weights") for m in model.modules())


@pytest.mark.parametrize("name", ["rotary", "gated:rotary", "favor:rotary", "favor_relu:rotary"])
def test_the_way_of_a_gpu_computes_the_same(name):
    """On a GPU, projections are joined, and operations work on queries and keys together."""
    model, found = tiny_in_blocks(name), []
    want, decode = (last_token(each, *padded_batch()) for each in (copy.deepcopy(model), model))
    count(lambda: found.append(decode()[0]), ())
    torch.testing.assert_close(found[0], want()[0], atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_host_does_not_wait_for_the_order_of_hypotheses():
    """On a CPU, the cache reads the order, so that it moves fewer tokens."""
    model, (source, target) = tiny_in_blocks("rotary").eval(), padded_batch()
    encoder_out, state, order = model.encoder(source, None), {}, torch.arange(len(source)).flip(0)
    count(lambda: model.decoder(target, encoder_out=encoder_out, incremental_state=state), ())
    reorder = model.decoder.reorder_incremental_state_scripting
    found = count(lambda: reorder(state, order), ())
    assert found.operations["index_select"] and not found.waits


SIZES = [*shape(6, 32, 32, 2), "--share-all-embeddings"]


@functools.lru_cache(maxsize=None)
def counted(arch, *flags):
    """Counts: kernels per training step, kernels per decoded token, saved bytes, token operations.

    The model has 6 + 6 layers and is in bfloat16.
    """
    torch.manual_seed(0)
    model, given = build(arch, *SIZES, *flags).bfloat16().train(), padded_batch(16, 16)
    trained = count_training(model, *given)
    token = count_token(model, *given)
    kernels = [sum(counts.kernels.values()) for counts in (trained, token)]
    return (*kernels, trained.saved, operations(token))


#: Limits for kernels, operations per token and bytes saved, relative to stock (None: no limit).
GOALS = [
    ("roformer_base", "", 0.85, 0.6, 1.02),
    ("t5bias_base", "", 0.9, None, 1.02),
    ("alibi_base", "", 0.9, None, 1.02),
    ("tupe_base", "", 0.9, None, 1.02),
    ("posenc_transformer", "--position-encoding shaw", 0.95, None, None),
    ("shaw_base", "", None, 0.6, None),
    ("roformer_v2_base", "--feed-forward mlp", 1.2, None, None),
    ("gau_base", "--encoder-layers 12 --gau-key-size 16", 1.5, None, None),
    # values are too wide for the usual kernels, as with a base model's width
    ("gau_base", "--gau-key-size 16 --gau-expansion 16", None, 0.9, None),
    ("performer_base", "", 1.6, 0.9, None),
]


@pytest.mark.parametrize("arch, flags, kernels, operations, saved", GOALS)
def test_goals_against_stock(arch, flags, kernels, operations, saved):
    goals = (kernels, kernels, saved, operations)
    for goal, stock, found in zip(goals, counted("transformer"), counted(arch, *flags.split())):
        assert goal is None or found <= goal * stock
