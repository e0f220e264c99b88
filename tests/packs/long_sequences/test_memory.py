"""Segment-level recurrence: outputs with a memory, gradients, streams of text, and refusals.

Transformer-XL, Dai et al., arXiv 1901.02860, section 3.2.
"""

import re
import shutil

import golden
import numpy as np
import pytest
import torch
from fairseq import models
from fairseq.tasks import TASK_REGISTRY
from support.causal_language_models import SMALL, task_of
from support.commands import USER_DIR, shape, succeed, train
from support.helpers import EVERY_ENCODING, LAYERS, PAD, copies, model_settings, sentences
from support.masked_language_models import Vocabulary
from support.toy_lm import SHAPE

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.encodings import parse_encodings
from fairseq_posenc.models.language_model import MODEL
from fairseq_posenc.packs.long_sequences.memory import moved_on
from fairseq_posenc.packs.long_sequences.streams import Carried, Corpus, StreamIterator, Streams
from tests.packs.long_sequences.test_funnel import halves

pytest_plugins = ["support.toy", "support.toy_lm"]
pytestmark = pytest.mark.formulas
TASK = "language_modeling_with_memory"
B, T, SEGMENTS = 2, 5, 3
RELATIVE = [name for name in EVERY_ENCODING if all(e.relative for e in parse_encodings(name))]
RELATIVE += ["rotary+t5", "shaw_values:shaw", "scaled:rotary+cope", "power:kerple", "rotary,none"]


@copies
def tiny(name, *flags, memory=SEGMENTS * T):
    """A two-layer language model in float64 with memory; *name* is ENCODING or LAYER:ENCODING."""
    layer, _, encoding = name.rpartition(":")
    given = ["--position-encoding", encoding, *SMALL, *LAYERS[layer], *flags]
    given += ["--tokens-per-sample", "64", "--memory-length", str(memory)]
    cfg = model_settings(MODEL, *given, task=TASK)
    return models.build_model(cfg, task_of(**{"task": TASK})).eval().double()


def read(model, text, sizes):
    """Logits of *text* (B, S), read in segments of *sizes* tokens, and the memory at the end."""
    memory, logits = [], []
    for segment in text.split(sizes, dim=1):
        out, extra = model(segment, memory=memory)
        memory = extra["memory"]
        logits.append(out)
    return torch.cat(logits, dim=1), memory


NORMS = ("--no-decoder-final-norm", "--decoder-normalize-before")
FURTHER = [("transformer_xl", [1, 6, 8], flags) for flags in ((), NORMS)]


@pytest.mark.parametrize(
    "name, sizes, flags", [(name, [T] * SEGMENTS, ()) for name in RELATIVE] + FURTHER
)
@torch.no_grad()
def test_segments_with_all_their_past_as_memory_give_the_full_forward(name, sizes, flags):
    model, text = tiny(name, *flags), sentences(B, SEGMENTS * T)
    got, memory = read(model, text, sizes)
    torch.testing.assert_close(got, model(text)[0], atol=1e-9, rtol=0)
    assert [layer.shape for layer in memory] == [(B, SEGMENTS * T, 32)] * 2


def test_a_memory_takes_the_type_and_the_device_of_what_follows():
    """The memory in a checkpoint is on the CPU."""
    memory, inputs = [torch.zeros(1, 3, 2)], [torch.zeros(1, 2, 2, dtype=torch.half, device="meta")]
    (moved,) = moved_on(memory, inputs, length=4)
    assert (moved.shape, moved.dtype, moved.device.type) == ((1, 4, 2), torch.half, "meta")


@pytest.mark.parametrize("name", ["rotary", "transformer_xl"])
def test_no_gradient_flows_into_the_memory(name):
    model, text = tiny(name).train(), sentences(B, 2 * T)
    first, second = text.split(T, dim=1)
    memory = model(first, memory=[])[1]["memory"]
    assert not any(layer.requires_grad for layer in memory)
    checkpointed = tiny(name, "--checkpoint-activations").train()
    checkpointed.load_state_dict(model.state_dict())
    for each in (model, checkpointed):
        each(second, memory=memory)[0].pow(2).mean().backward()
    for a, b in zip(model.parameters(), checkpointed.parameters()):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-12, rtol=1e-9)
    # embeddings of tokens that occur only in the first segment have no gradient (the output layer
    # has its own matrix)
    table = model.decoder.embed_tokens.weight.grad
    only_first = sorted(set(first.flatten().tolist()) - set(second.flatten().tolist()))
    assert only_first and not table[only_first].any()
    assert table[second.flatten()].abs().sum(dim=-1).all()


@torch.no_grad()
def test_padding_at_the_end_of_a_stream_changes_no_other_token():
    model, (first, second) = tiny("t5"), sentences(B, T + 4).split([T, 4], dim=1)
    memory = model(first, memory=[])[1]["memory"]
    whole, second = model(second, memory=memory)[0], second.clone()
    second[1, 3:] = PAD
    padded = model(second, memory=memory)[0]
    assert torch.equal(padded[0], whole[0])
    torch.testing.assert_close(padded[1, :3], whole[1, :3], atol=1e-12, rtol=0)


def from_transformers(state):
    """transformers' parameters under our names; its attention has no biases."""
    found = {"embed_tokens.weight": state["word_emb.emb_layers.0.weight"]}
    for index in range(2):
        old, new = f"layers.{index}.dec_attn.", f"layers.{index}.self_attn."
        projections = [*state[f"{old}qkv_net.weight"].chunk(3), state[f"{old}o_net.weight"]]
        for name, weight in zip(("q_proj", "k_proj", "v_proj", "out_proj"), projections):
            found[f"{new}{name}.weight"] = weight
            found[f"{new}{name}.bias"] = torch.zeros(len(weight))
        terms = f"{new}position_terms.transformer_xl."
        found[f"{terms}proj.weight"] = halves(state[f"{old}r_net.weight"])
        found[f"{terms}u"] = state[f"{old}r_w_bias"].unsqueeze(1)
        found[f"{terms}v"] = state[f"{old}r_r_bias"].unsqueeze(1)
        rest = {"dec_attn.layer_norm": "self_attn_layer_norm", "pos_ff.CoreNet.0": "fc1"}
        rest.update({"pos_ff.CoreNet.3": "fc2", "pos_ff.layer_norm": "final_layer_norm"})
        for name, own in rest.items():
            for end in ("weight", "bias"):
                found[f"layers.{index}.{own}.{end}"] = state[f"layers.{index}.{name}.{end}"]
    return found


@torch.no_grad()
def test_states_of_segments_are_those_of_transformers():
    """The memory is shorter than all segments before the last one."""
    reference = golden.load("transfo_xl_memory")
    flags = ["--position-encoding", "transformer_xl", *shape(2, 16, 24, 2, "decoder")]
    flags += ["--dropout", "0", "--activation-fn", "relu"]
    flags += ["--memory-length", str(reference["config"]["mem_len"])]
    flags += ["--decoder-input-dim", "16", "--decoder-output-dim", "16"]
    cfg = model_settings(MODEL, *flags, task=TASK)
    model = models.build_model(cfg, task_of(Vocabulary([""] * 11), task=TASK)).eval()
    missing, unexpected = model.decoder.load_state_dict(
        from_transformers(reference["state_dict"]), strict=False
    )
    assert not unexpected and set(missing) <= {"version", "output_projection.weight"}
    model.decoder.padding_idx = -1  # the reference's texts have no padding
    memory = []
    for key, tokens in reference["inputs"].items():
        states, extra = model(tokens, memory=memory, features_only=True)
        memory = extra["memory"]
        torch.testing.assert_close(states, reference["outputs"][key], atol=2e-5, rtol=1e-5)


# --- streams of a text, the memory between their batches, and resumed trainings

EOS, ROOM = 2, 4


class Lines(list):
    """A data set of lines with 23 tokens in total, all different."""

    sizes = np.array([3, 1, 7, 2, 9, 1])


TEXT = Lines(torch.arange(10, 33, dtype=torch.int32).split(Lines.sizes.tolist()))


def batches(text, rows, workers=1):
    """All batches of each worker, in order."""
    streams = Streams(Corpus(text, EOS, PAD, ROOM), rows * workers)
    indices = streams.batches(rows)
    found = [streams.collater([streams[i] for i in batch]) for batch in indices]
    return [found[worker::workers] for worker in range(workers)]


@pytest.mark.parametrize("rows, workers", [(1, 1), (3, 1), (2, 4), (5, 1), (23, 1)])
def test_every_token_is_predicted_once_after_the_one_before_it(rows, workers):
    whole = torch.cat([torch.tensor([EOS]), *TEXT])
    seen, parts = [], batches(TEXT, rows, workers)
    for together in zip(*parts):
        assert len({tuple(batch["target"].shape) for batch in together}) == 1
        counts = [int(batch["target"].ne(PAD).sum()) for batch in together]
        assert counts == [batch["ntokens"] for batch in together]
    for own in parts:
        assert [batch["segment"] for batch in own] == list(range(len(own)))
        for row in range(rows):
            source, target = (
                torch.cat([parts(batch)[row] for batch in own])
                for parts in (lambda b: b["net_input"]["src_tokens"], lambda b: b["target"])
            )
            assert torch.equal(source.eq(PAD), target.eq(PAD))
            source, target = source[source != PAD], target[target != PAD]
            first = int(target[0]) - 10  # a stream has consecutive tokens of the text
            assert torch.equal(target, whole[1:][first : first + len(target)].long())
            assert torch.equal(source, whole[first : first + len(target)].long())
            seen += target.tolist()
    assert sorted(seen) == list(range(10, 33))


def test_what_knows_no_memory_and_more_streams_than_tokens_are_refused():
    with pytest.raises(UsageError, match="fairseq-eval-lm: scores every batch on its own"):
        TASK_REGISTRY[TASK].eval_lm_dataloader(None)
    with pytest.raises(UsageError, match="--max-tokens 3: a batch holds less than a segment"):
        TASK_REGISTRY[TASK].get_batch_iterator(None, Corpus(TEXT, EOS, PAD, ROOM), 3)
    with pytest.raises(UsageError, match="24 streams are more than the 23 tokens"):
        Streams(Corpus(TEXT, EOS, PAD, ROOM), 24)


def test_batches_read_again_have_the_memory_of_the_first_time():
    """As with --amp and --update-freq 2 after an overflow."""
    carried = Carried()

    def read(segment):
        memory = carried.before(segment)
        carried.after(segment, [*memory, segment])
        return memory

    assert [read(0), read(1)] == [[], [0]]
    carried.updated()
    for _ in range(3):
        assert [read(2), read(3)] == [[0, 1], [0, 1, 2]]
        carried.updated()
    assert read(4) == [0, 1, 2, 3]
    assert read(0) == []  # the next epoch


def test_a_batch_that_was_skipped_leaves_no_memory(caplog):
    carried = Carried()
    carried.after(0, ["state"])
    assert carried.before(2) == []
    assert "segment 2 is read without memory" in caplog.text  # segment 1 was not read


def iterator(workers=1, worker=0):
    streams = Streams(Corpus(TEXT, EOS, PAD, ROOM), 2 * workers)
    sampler = {"collate_fn": streams.collater, "batch_sampler": streams.batches(2)}
    shards = {"num_shards": workers, "shard_id": worker}
    return StreamIterator(Carried(), streams.count, dataset=streams, **sampler, **shards)


def test_the_memory_of_all_workers_is_saved_and_shared_out(monkeypatch):
    own = [torch.randn(2, 3, 4), torch.randn(2, 3, 4)]
    monkeypatch.setattr(
        torch.distributed, "broadcast", lambda part, src: part.copy_(own[src]), raising=False
    )
    workers = [iterator(workers=2, worker=worker) for worker in (0, 1)]
    epochs = [worker.next_epoch_itr() for worker in workers]
    for worker, epoch, memory in zip(workers, epochs, own):
        worker.carried.after(next(epoch)["segment"], [memory])
        worker.gather()
    state = workers[0].state_dict()
    for number, memory in enumerate(own):
        other = iterator(workers=2, worker=number)
        other.load_state_dict(state)
        assert next(other.next_epoch_itr())["segment"] == 1
        assert torch.equal(other.carried.before(1)[0], memory)
    with pytest.raises(UsageError, match="4 streams within an epoch, and this run has 2 streams"):
        iterator().load_state_dict(state)
    with pytest.raises(UsageError, match="saved by another task"):
        iterator().load_state_dict({**state, "streams": None})
    list(epochs[0])
    assert "memory" not in workers[0].state_dict()  # at the end of an epoch


MEMORY = ["--task", TASK, "--tokens-per-sample", "4"]
RUN = ["--arch", "transformer_xl_lm_small", *SHAPE, "--memory-length", "6", "--dropout", "0.1"]
RUN += [*MEMORY, "--batch-size", "4", "--update-freq", "2"]


def test_a_resumed_training_goes_on_with_its_memory_bit_for_bit(corpus, tmp_path):
    """fairseq-validate also repeats the loss of the training's validation."""
    whole, rest = tmp_path / "whole", tmp_path / "rest"
    usual = [*RUN, "--max-update", "6"]
    losses = train(corpus, whole, *usual, "--save-interval-updates", "4").losses()
    rest.mkdir()
    shutil.copy(whole / "checkpoint_1_4.pt", rest / "checkpoint_last.pt")
    resumed = train(corpus, rest, *usual).losses()
    assert {"update 5", "update 6", "valid 1"} <= resumed.keys() and "update 4" not in resumed
    assert all(resumed[key] == losses[key] for key in resumed if key.startswith("update"))
    ends = [read_checkpoint(run / "checkpoint_last.pt") for run in (whole, rest)]
    for key, value in ends[0]["model"].items():
        assert torch.equal(value, ends[1]["model"][key]), key
    memories = [end["extra_state"]["train_iterator"]["memory"] for end in ends]
    assert [layer.shape for layer in memories[0]] == [(4, 6, 16)] * 2
    assert all(torch.equal(a, b) for a, b in zip(*memories))

    checkpoint = ["--path", whole / "checkpoint_last.pt", "--cpu", "--num-workers", "0"]
    scored = [corpus, *USER_DIR, *checkpoint, "--batch-size", "4", "--log-format", "json"]
    found = succeed("validate", *scored, *MEMORY).entries("valid")
    assert float(found[0]["valid_loss"]) == pytest.approx(losses["valid 1"], abs=2e-3)
    search = ["--beam", "2", "--max-len-b", "9", "--task", "language_modeling"]
    said = succeed("interactive", corpus, *USER_DIR, *checkpoint[:3], *search, stdin="a1 a2\n")
    assert re.search(r"^H-0\t\S+\ta1 a2", said.out, re.MULTILINE)
