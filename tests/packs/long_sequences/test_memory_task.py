"""Streams of a text, the memory between their batches, and training that goes on with it."""

import re
import shutil

import numpy as np
import pytest
import torch
from fairseq.tasks import TASK_REGISTRY
from support.commands import TRAINING, USER_DIR, succeed
from support.toy_lm import SHAPE

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.packs.long_sequences.streams import Carried, Corpus, StreamIterator, Streams

pytest_plugins = ["support.toy", "support.toy_lm"]

pytestmark = pytest.mark.properties
EOS, PAD, T = 2, 1, 4


class Lines(list):
    """A data set of lines; each token is unlike all others."""

    def __init__(self, *sizes):
        tokens = torch.arange(10, 10 + sum(sizes), dtype=torch.int32)
        super().__init__(tokens.split(sizes))
        self.sizes = np.array(sizes)


TEXT = Lines(3, 1, 7, 2, 9, 1)  # 23 tokens


def batches(text, rows, workers=1):
    """All batches of every worker, in order."""
    streams = Streams(Corpus(text, EOS, PAD, T), rows * workers)
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
            first = int(target[0]) - 10  # a stream: consecutive tokens of the text
            assert torch.equal(target, whole[1:][first : first + len(target)].long())
            assert torch.equal(source, whole[first : first + len(target)].long())
            seen += target.tolist()
    assert sorted(seen) == list(range(10, 33))


def test_what_knows_no_memory_is_refused():
    with pytest.raises(UsageError, match="fairseq-eval-lm: scores every batch on its own"):
        TASK_REGISTRY["language_modeling_with_memory"].eval_lm_dataloader(None)


def test_more_streams_than_tokens_are_refused():
    with pytest.raises(UsageError, match="24 streams are more than the 23 tokens"):
        Streams(Corpus(TEXT, EOS, PAD, T), 24)


def test_batches_read_again_have_the_memory_of_the_first_time():
    """--amp with --update-freq 2, after an overflow."""
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
    assert "segment 2 is read without memory" in caplog.text  # it followed segment 1


def iterator(rows=2, workers=1, worker=0):
    streams = Streams(Corpus(TEXT, EOS, PAD, T), rows * workers)
    return StreamIterator(
        Carried(),
        streams.count,
        dataset=streams,
        collate_fn=streams.collater,
        batch_sampler=streams.batches(rows),
        num_shards=workers,
        shard_id=worker,
    )


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


MEMORY = ["--task", "language_modeling_with_memory", "--tokens-per-sample", "4"]
MODEL = ["--arch", "transformer_xl_lm_small", *SHAPE, "--memory-length", "6"]
RUN = [*MEMORY, *MODEL, "--dropout", "0.1", "--batch-size", "4", "--update-freq", "2"]


def test_a_resumed_training_goes_on_with_its_memory_bit_for_bit(corpus, tmp_path):
    """And fairseq-validate repeats the perplexity of the training's validation."""
    whole, rest = tmp_path / "whole", tmp_path / "rest"
    usual = [corpus, *USER_DIR, *TRAINING, *RUN, "--max-update", "6"]
    flags = ["--save-interval-updates", "4", "--save-dir"]
    losses = succeed("train", *usual, *flags, whole).losses()
    rest.mkdir()
    shutil.copy(whole / "checkpoint_1_4.pt", rest / "checkpoint_last.pt")
    resumed = succeed("train", *usual, "--save-dir", rest).losses()
    assert {"update 5", "update 6", "valid 1"} <= resumed.keys() and "update 4" not in resumed
    updates = {key: loss for key, loss in losses.items() if key.startswith("update")}
    assert {key: resumed[key] for key in resumed if "update" in key}.items() <= updates.items()
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
