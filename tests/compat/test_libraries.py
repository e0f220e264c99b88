"""What NumPy 2 and PyTorch 2 changed: fairseq finds what it relies on."""

import warnings

import numpy as np
import pytest
import torch
from fairseq.data import TokenBlockDataset, bucket_pad_length_dataset, data_utils

from fairseq_posenc.compat import libraries


def test_compat_long_is_there_when_numpy_has_it_no_more(monkeypatch):
    if hasattr(np, "compat"):
        monkeypatch.delattr(np, "compat")
    libraries.numpy_compat_long()
    sizes = [3, 1, 4]
    blocks = TokenBlockDataset(
        *([torch.ones(size).long() for size in sizes], sizes, None), pad=0, eos=2, break_mode="eos"
    )
    assert [len(block) for block in blocks] == sizes


@pytest.mark.parametrize("number", [1, 2, 3, 7, 50])
def test_buckets_are_lower_percentiles(number):
    sizes = np.random.RandomState(number).randint(1, 100, 64)
    ordered = sorted(sizes.tolist())
    positions = [int((len(sizes) - 1) * rank / number + 1e-9) for rank in range(1, number + 1)]
    expected = sorted({ordered[position] for position in positions})
    assert libraries._buckets(sizes, number).tolist() == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in (data_utils, bucket_pad_length_dataset):
            assert module.get_buckets(sizes, number).tolist() == expected


@pytest.mark.parametrize("aggregate", [None, lambda norm: norm * 2])
def test_the_norm_of_gradients_is_moved_to_their_device(aggregate):
    """The result is on the device of the input, as if fairseq had computed it on another one."""
    weights = [None, torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))]
    weights[2].grad = torch.ones(2)
    moved = []

    class Norm(float):
        def __mul__(self, other):
            return Norm(float(self) * other)

        def to(self, device):
            moved.append(device)
            return float(self)

    def clip(params, max_norm, aggregate_norm_fn):
        assert params == weights and max_norm == 3.0
        return aggregate_norm_fn(Norm(7))

    found = libraries.clip_where_gradients_are(clip)(iter(weights), 3.0, aggregate)
    assert found == (7 if aggregate is None else 14) and moved == [torch.device("cpu")]
