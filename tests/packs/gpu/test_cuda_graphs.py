"""Recorded decoding steps have the outputs of ordinary steps and repeat the same operations.

Without a GPU nothing is recorded: steps are computed with the tensors that a recording would use.
The tests check what a recording needs: the same operations, shapes and addresses for every token,
and a host that never waits.
"""

import copy
from argparse import Namespace

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from support.causal_language_models import tiny as tiny_language_model
from support.helpers import (
    EVERY_ENCODING,
    OTHER_LAYERS,
    PAD,
    TINY,
    VOCABULARY,
    build,
    padded_batch,
    sentences,
    tiny_in_blocks,
)
from torch.utils._python_dispatch import TorchDispatchMode

from counting import count
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.versions import HAS_SDPA
from fairseq_posenc.packs.gpu import cuda_graphs

pytestmark = pytest.mark.properties


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """Compute steps as on a GPU; caches have room for only 4 tokens, so that they must grow."""
    monkeypatch.setattr(cuda_graphs, "launch_bound", lambda x: not torch.is_grad_enabled())
    monkeypatch.setattr(cuda_graphs, "BLOCK", 4)


def prepared(model):
    """*model*, and a copy whose decoder has a recorder."""
    model.eval().make_generation_fast_(need_attn=False)
    other = copy.deepcopy(model)
    other.decoder.steps = cuda_graphs.Recorder(Namespace(), other.decoder)
    return model, other


REFUSED = ("local:", "bigbird:", "reformer:", "mixed_chunks:")
RECORDED = [n for n in EVERY_ENCODING + OTHER_LAYERS if not n.startswith(REFUSED)]


def search(models, source):
    generator = SequenceGenerator(models, VOCABULARY, beam_size=3, max_len_b=12)
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}}
    return [
        [(each["tokens"].tolist(), each["positional_scores"]) for each in best]
        for best in generator.generate(models, sample)
    ]


def same(got, want):
    for one, other in zip(got, want):
        assert [tokens for tokens, _ in one] == [tokens for tokens, _ in other]
        for (_, a), (_, b) in zip(one, other):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


GPU = [pytest.param("cuda", room, marks=pytest.mark.gpu) for room in (4, 64)]


@pytest.mark.parametrize("device, room", [("cpu", 4), *GPU])
@pytest.mark.parametrize("name", RECORDED)
def test_a_search_finds_the_same(name, device, room, monkeypatch):
    """Hypotheses are reordered, sentences end at different steps, and sources are padded."""
    monkeypatch.setattr(cuda_graphs, "BLOCK", room)
    plain, recorded = prepared(tiny_in_blocks(name).to(device))
    source = padded_batch()[0].to(device)
    want = search([plain], source)
    with torch.inference_mode():  # later calls are outside of this mode
        same(search([recorded], source), want)
    same(search([recorded], source), want)  # this and the next use existing recordings
    same(search([recorded], source.flip(0)), search([plain], source.flip(0)))
    found = recorded.decoder.steps.recordings
    assert found and (device == "cpu" or all(each.graph is not None for each in found))


class Called(TorchDispatchMode):
    """Notes each operation with shapes, numbers, and addresses of tensors made before this mode."""

    def __init__(self):
        super().__init__()
        self.calls, self.made = [], {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.calls.append((func.__name__, self.noted([args, kwargs])))
        for made in out if isinstance(out, (tuple, list)) else [out]:
            if torch.is_tensor(made):  # kept, so that its memory is not reused
                self.made.setdefault(made.untyped_storage().data_ptr(), made)
        return out

    def noted(self, given):
        if torch.is_tensor(given):
            place = given.untyped_storage().data_ptr()
            from_before = 0 if place in self.made else given.data_ptr()
            return tuple(given.shape), given.stride(), given.dtype, from_before
        if isinstance(given, dict):
            return [(key, self.noted(value)) for key, value in given.items()]
        return [self.noted(x) for x in given] if isinstance(given, (list, tuple)) else given


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.skipif(not HAS_SDPA, reason="counts need fused attention, PyTorch 2.0")
@torch.no_grad()
def test_every_step_is_the_same_operations_at_the_same_places(name, monkeypatch):
    monkeypatch.setattr(cuda_graphs, "BLOCK", 16)
    _, model = prepared(tiny_in_blocks(name))
    source, target = padded_batch()
    target, state, calls = target.masked_fill(target.eq(PAD), 5), {}, []
    replay = cuda_graphs.Recording.replay

    def noted(recording, decoder):
        with Called() as found:
            replay(recording, decoder)
        calls.append(found.calls)
        if len(calls) == 2:  # replay once more, to count, without reordering again
            recording.order.copy_(recording.rows)
            counts = count(lambda: replay(recording, decoder), decoder.parameters())
            assert not counts.waits and not counts.copies

    monkeypatch.setattr(cuda_graphs.Recording, "replay", noted)
    encoder_out = model.encoder(source)
    for length in range(1, target.size(1) + 1):
        model.decoder(target[:, :length], encoder_out=encoder_out, incremental_state=state)
        order = torch.tensor([1, 0, 2])
        model.decoder.reorder_incremental_state_scripting(state, order)
    assert len(calls) == target.size(1) - 1 and calls[0]
    for other in calls[1:]:
        assert other == calls[0]


@torch.no_grad()
def test_two_searches_at_a_time_do_not_meet():
    plain, model = prepared(build("roformer_base", *TINY))
    batches = [(sentences(3, 7, seed=s), sentences(3, 9, seed=s + 5), {}) for s in (1, 2)]
    for length in range(1, 10):
        for source, target, state in batches:
            out = model.encoder(source)
            got = model.decoder(target[:, :length], encoder_out=out, incremental_state=state)[0]
            want = plain.decoder(target[:, :length], encoder_out=out)[0]
            torch.testing.assert_close(got[:, -1], want[:, -1], atol=1e-5, rtol=0)
    with pytest.raises(UsageError, match="--cuda-graphs: the state of a search cannot be copied"):
        copy.deepcopy(state)


@torch.no_grad()
def test_recordings_of_searches_that_ended_are_used_again():
    _, model = prepared(build("roformer_base", *TINY))
    source, recorder = sentences(3, 7), model.decoder.steps
    search([model], source)
    first = list(recorder.recordings)
    assert 1 < len(first) <= cuda_graphs.MOST + 1
    search([model], source)
    assert {id(each) for each in recorder.recordings} <= {id(each) for each in first}
    model.half()
    assert not recorder.recordings
    model.float()
    search([model], source)
    model.decoder.train()
    assert not recorder.recordings and not copy.deepcopy(model).decoder.steps.recordings


@torch.no_grad()
def test_what_cannot_be_recorded_goes_on_otherwise():
    """Steps of several tokens, and steps with gradients, for softmax and linear attention."""
    for arch in ("roformer_base", "performer_base"):
        plain, model = prepared(build(arch, *TINY))
        # hypotheses of one sentence
        source, target = sentences(1, 7).expand(3, -1), sentences(3, 9)
        out, state = model.encoder(source), {}
        want = plain.decoder(target, out)[0]
        for start, end in ((0, 1), (1, 2), (2, 3), (3, 6), (6, 7), (7, 9)):
            with torch.set_grad_enabled(end == 7):
                x = model.decoder(target[:, :end], encoder_out=out, incremental_state=state)[0]
            assert x.requires_grad == (end == 7)
            assert ("recorded_batch" in state) == (end in (2, 3))
            torch.testing.assert_close(x, want[:, start:end], atol=1e-5, rtol=0)
            order = torch.tensor([2, 0, 1])
            model.decoder.reorder_incremental_state_scripting(state, order)
            target, want = target[order], want[order]


@torch.no_grad()
def test_weights_over_the_source_are_those_of_a_step():
    plain, model = prepared(build("roformer_base", *TINY))
    source, target = padded_batch()
    for each in (plain, model):
        each.decoder.layers[-1].need_attn = True
    out, state = model.encoder(source), {}
    for length in range(1, 4):
        given = {"encoder_out": out, "alignment_heads": 2}
        x, extra = model.decoder(target[:, :length], incremental_state=state, **given)
        want = plain.decoder(target[:, :length], **given)[1]["attn"][0]
        torch.testing.assert_close(extra["attn"][0][:, -1], want[:, -1], atol=1e-6, rtol=0)


@torch.no_grad()
def test_language_models_and_prompts():
    """Prompts with padding are continued without recording."""
    plain, model = prepared(tiny_language_model("rotary"))
    tokens = sentences(3, 9)
    for start, padded in ((1, False), (4, False), (4, True)):
        if padded:
            tokens[0, :2] = PAD
        state, want = {}, plain(tokens)[0]
        for length in range(start, 10):
            got = model.decoder(tokens[:, :length], incremental_state=state)[0]
            real = tokens[:, length - 1].ne(PAD)
            torch.testing.assert_close(got[real, -1], want[real, length - 1], atol=1e-5, rtol=0)
        assert ("recorded_batch" in state) == (not padded)


def test_the_flag_has_no_effect_on_a_cpu(monkeypatch):
    monkeypatch.undo()
    model = build("roformer_base", *TINY, "--cuda-graphs").eval()
    search([model], sentences(3, 7))
    assert model.decoder.steps is not None and not model.decoder.steps.recordings
