"""--random-positions: what models see in training and in evaluation, and what is refused."""

import pytest
import torch
from support.helpers import PAD, build, encoding_of, sentences, tiny

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.base import DistanceBias
from fairseq_posenc.encodings.random_positions import sample_positions
from fairseq_posenc.stacks import positions

TAKERS = [name for name, entry in ENCODINGS.items() if entry.takes_positions]
COUNTERS = [name for name, entry in ENCODINGS.items() if entry.input or entry.content]
OF_DISTANCE = [n for n, e in ENCODINGS.items() if e.shared and issubclass(e.shared, DistanceBias)]


def test_a_sample_is_sorted_distinct_and_uniform():
    torch.manual_seed(0)
    counts = torch.zeros(20)
    for _ in range(500):
        sample = sample_positions(5, 20, False, torch.device("cpu"))
        assert sample.diff().gt(0).all() and sample.min() >= 0 and sample.max() < 20
        counts[sample] += 1
    assert counts.min() > 85 and counts.max() < 165  # 125 each


def test_an_untied_cls_stays_at_position_0():
    for _ in range(5):
        sample = sample_positions(4, 20, True, torch.device("cpu"))
        assert sample[0] == 0 and sample.diff().gt(0).all()


def seen_positions(monkeypatch, model, *inputs):
    """The key positions that the encodings of a model are given, by stack."""
    seen, plain = [], positions.StackPositions.of_layers

    def spy(self, *arguments):
        given = []
        (encoding,) = self.encodings.values()
        handle = encoding.shared_bias.register_forward_pre_hook(
            lambda _, args: given.append(args[1])
        )
        bundles = plain(self, *arguments)
        handle.remove()
        seen.append(given[0])
        return bundles

    monkeypatch.setattr(positions.StackPositions, "of_layers", spy)
    model(*inputs)
    return seen


def test_training_sees_samples_and_evaluation_counts(monkeypatch):
    model = tiny("t5", "--random-positions", "900")
    source, target = sentences(2, 6), sentences(2, 5, seed=1)
    for given, length in zip(seen_positions(monkeypatch, model, source, None, target), (6, 5)):
        assert given.tolist() == [list(range(length))]
    model.train()
    for given, length in zip(seen_positions(monkeypatch, model, source, None, target), (6, 5)):
        assert given.shape == (1, length) and given.diff().gt(0).all()
        assert given.max() >= length


def test_padding_on_the_left_takes_the_first_of_the_sample(monkeypatch):
    model = tiny("tupe", "--random-positions", "900").train()
    source, target = sentences(2, 6), sentences(2, 5, seed=1)
    source[0, :2] = PAD
    padded, _ = seen_positions(monkeypatch, model, source, None, target)
    assert padded[0, 2:].equal(padded[1, :4])


@torch.no_grad()
@pytest.mark.parametrize("name", TAKERS)
def test_every_encoding_with_positions_learns_them(name):
    """A model in training sees others each time; it is the usual one in evaluation."""
    plain, model = tiny(name), tiny(name, "--random-positions", "1000")
    model.load_state_dict(plain.state_dict())
    for parameter in plain.parameters():  # some begin as zeros
        torch.nn.init.normal_(parameter, std=0.5)
    model.load_state_dict(plain.state_dict())
    source, target = sentences(2, 6), sentences(2, 5, seed=1)
    assert torch.equal(model(source, None, target)[0], plain(source, None, target)[0])
    model.train()
    first, second = (model(source, None, target)[0] for _ in range(2))
    assert not torch.allclose(first, second, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("name", OF_DISTANCE)
def test_logits_of_sampled_positions_are_those_of_their_distances(name):
    encoding = encoding_of(name, random_positions=30).shared_bias[name].train()
    positions = torch.tensor([[0, 3, 4, 11, 29]])
    got = encoding(positions[:, 2:], positions)
    assert got.shape == (1, 4, 3, 5) and got.stride(-1) == 1
    for i in range(3):
        distances = positions[0] - positions[0, 2 + i]
        torch.testing.assert_close(got[0, :, i], encoding.by_distance(distances))


def test_all_layers_of_a_pattern_see_one_sample(monkeypatch):
    calls = []
    plain = positions.sample_positions
    monkeypatch.setattr(positions, "sample_positions", lambda *a: calls.append(a) or plain(*a))
    model = tiny("rotary*1,t5", "--random-positions", "1000").train()
    model(sentences(2, 6), None, sentences(2, 5, seed=1))
    assert [length for length, *_ in calls] == [6, 5]


@pytest.mark.parametrize("name", [*COUNTERS, "rotary+sinusoidal", "t5+deberta"])
def test_encodings_without_positions_are_refused_by_name(name):
    with pytest.raises(UsageError, match="--random-positions 40: .* is not given positions"):
        tiny(name, "--random-positions", "40")


def test_lengths_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="at most the 1024 positions of the encoder"):
        build("roformer_tiny", "--random-positions", "1025")
    model = build("roformer_tiny", "--random-positions", "4").train()
    with pytest.raises(UsageError, match="a training sequence has 6 tokens"):
        model(sentences(2, 6), None, sentences(2, 3))
