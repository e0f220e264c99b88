"""Work-arounds for fairseq's batches: epochs that workers know of, and no sentence is lost."""

from argparse import Namespace

import numpy as np
import pytest
from fairseq.data import FairseqDataset, data_utils
from fairseq.tasks.fairseq_task import FairseqTask

pytestmark = pytest.mark.properties

SIZES = [1, 7, 8, 9, 461]


class Epochs(FairseqDataset):
    """Data that say which epoch it is."""

    can_reuse_epoch_itr_across_epochs = True
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return self.epoch

    def __len__(self):
        return 4

    def size(self, index):
        return 1

    num_tokens = size

    def collater(self, samples):
        return samples


@pytest.mark.parametrize("processes", [0, 1])
def test_processes_that_load_data_learn_of_the_epoch(processes):
    task, data = FairseqTask(Namespace()), Epochs()
    for epoch in (1, 2, 3):
        batches = task.get_batch_iterator(data, max_sentences=2, epoch=epoch, num_workers=processes)
        assert list(batches.next_epoch_itr()) == [[epoch, epoch]] * 2


# No sentence is lost


class Sentences(FairseqDataset):
    """Sentences of given lengths; *shapes* and *vector* choose fairseq's way of batching them."""

    def __init__(self, lengths, shapes=None, vector=True):
        self.sizes, self.shapes, self.vector = np.asarray(lengths), shapes, vector

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, index):
        return index

    def collater(self, samples):
        return samples

    def size(self, index):
        return int(self.sizes[index])

    num_tokens = size

    def num_tokens_vec(self, indices):
        if not self.vector:
            raise NotImplementedError
        return self.sizes[indices]

    def ordered_indices(self):
        return np.argsort(self.sizes, kind="stable")

    def get_batch_shapes(self):
        return self.shapes


WAYS = {
    "by vector": {},
    "by function": {"vector": False},
    "fixed shapes": {"shapes": [(8, 20), (16, 10), (32, 5)]},
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("multiple", [1, 8])
def test_batches_hold_every_sentence_once_and_in_order(size, way, multiple):
    dataset = Sentences(np.random.RandomState(size).randint(1, 20, size), **WAYS[way])
    indices = dataset.ordered_indices()
    batches = dataset.batch_by_size(indices, max_tokens=330, required_batch_size_multiple=multiple)
    assert np.concatenate(batches).tolist() == indices.tolist()
    for batch in batches:
        assert 0 < len(batch) * max(dataset.sizes[batch]) <= 330
    for batch in batches[:-1]:
        assert len(batch) < multiple or len(batch) % multiple == 0 or way == "fixed shapes"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shards", [1, 2])
def test_an_epoch_has_every_sentence_once(size, shards):
    seen = []
    for shard in range(shards):
        iterator = FairseqTask(Namespace()).get_batch_iterator(
            Sentences(np.full(size, 7)),
            max_sentences=16,
            required_batch_size_multiple=8,
            num_shards=shards,
            shard_id=shard,
        )
        seen += [index for batch in iterator.next_epoch_itr(shuffle=True) for index in batch]
    assert sorted(seen) == list(range(size))


def test_no_sentence_makes_no_batch():
    nothing = np.array([], dtype=np.int64)
    assert data_utils.batch_by_size(nothing, len, required_batch_size_multiple=8) == []
    assert list(data_utils.batch_by_size(iter([]), len, required_batch_size_multiple=8)) == []
