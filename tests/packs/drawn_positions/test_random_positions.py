"""--random-positions: what models see in training and in evaluation, and what is refused."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import FairseqEncoderDecoderModel
from support import causal_language_models, masked_language_models
from support.causal_language_models import tiny as language_model
from support.helpers import PAD, VOCABULARY, build, sentences, tiny
from support.parts import encoding_flags, encoding_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import ENCODINGS, Places
from fairseq_posenc.encodings.base import DistanceBias
from fairseq_posenc.packs.drawn_positions.samplers import SAMPLERS, DrawnPositions
from tests.encodings.test_position_ids import RULES, model_of

TAKERS = [name for name, entry in ENCODINGS.items() if entry.takes_positions]
#: those in gated units, whose values have no positions
IN_UNITS = [f"softmax:{name}" for name in TAKERS if name != "nezha"]
OF_DISTANCE = [n for n, e in ENCODINGS.items() if e.shared and issubclass(e.shared, DistanceBias)]


def test_a_sample_is_sorted_distinct_and_uniform():
    torch.manual_seed(0)
    counts = torch.zeros(20)
    sampler = sampler_of("ordered", 20)
    assert sampler.limit(5) == 20
    for _ in range(500):
        (sample,) = sampler.draw(5, 3, torch.device("cpu"))
        assert sample.diff().gt(0).all() and sample.min() >= 0 and sample.max() < 20
        counts[sample] += 1
    assert counts.min() > 85 and counts.max() < 165  # 125 each


def sampler_of(name, number):
    return SAMPLERS[name].thing(Namespace(random_positions=number))


def test_every_shift_is_drawn_and_differs_between_sequences():
    torch.manual_seed(0)
    sampler = sampler_of("shift", 6)
    drawn = sampler.draw(4, 700, torch.device("cpu"))
    assert drawn.shape == (700, 4) and drawn.diff().eq(1).all()
    counts = drawn[:, 0].bincount()
    assert len(counts) == 7 and counts.min() > 65 and counts.max() < 140  # 100 each
    assert drawn.max() < sampler.limit(4) == 10


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_untied_cls_stays_at_position_0(name):
    stack = encoding_of("tupe", has_cls=True).stack
    flags = encoding_flags("tupe", random_positions=20, position_sampler=name, untie_cls=True)
    made = DrawnPositions(flags, stack, VOCABULARY)
    tokens, counted = sentences(2, 4), torch.arange(4).unsqueeze(0)
    for _ in range(5):
        found = made.of_batch(tokens, counted, True).places.keys
        assert found[:, 0].eq(0).all() and found.diff().gt(0).all()
    assert made.of_batch(tokens, counted, False) is None


def seen_positions(monkeypatch, model, *inputs):
    """The key positions that the encodings of a model are given, by stack."""
    seen = []
    for stack in (model.encoder, model.decoder):

        def noted(places, *, plain=stack.encoding.shared_bias.forward, **more):
            seen.append(places.keys)
            return plain(places, **more)

        monkeypatch.setattr(stack.encoding.shared_bias, "forward", noted)
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


@pytest.mark.parametrize("name", ["sinusoidal", "learned+t5", "learned+transformer_xl"])
@torch.no_grad()
def test_shape_moves_each_sequence_and_leaves_distances_alone(name, monkeypatch):
    """SHAPE: the vectors that are added move, and what knows distances alone notices nothing."""
    flags = ("--random-positions", "40", "--position-sampler", "shift")
    model, plain = tiny(name, *flags), tiny(name)
    plain.load_state_dict(model.state_dict())
    source = sentences(2, 6)
    monkeypatch.setattr(torch, "randint", lambda *a, **k: torch.tensor([[7], [30]]))
    drawn = model.train().encoder(source)["encoder_out"][0]
    table = plain.encoder.added_positions(torch.full((1, 60), 5), None)
    for row, moved in enumerate((7, 30)):
        vectors = table[:, moved : moved + 6]
        monkeypatch.setattr(plain.encoder, "added_positions", lambda *a, v=vectors: v)
        want = plain.encoder(source[row : row + 1])["encoder_out"][0]
        torch.testing.assert_close(drawn[:, row : row + 1], want)


@torch.no_grad()
@pytest.mark.parametrize("name", [*TAKERS, *IN_UNITS])
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
    encoding = encoding_of(name).shared_bias[name].train()
    positions = torch.tensor([[0, 3, 4, 11, 29]])
    got = encoding(Places(positions[:, 2:], positions, 30))
    assert got.shape == (1, 4, 3, 5) and got.stride(-1) == 1
    for i in range(3):
        distances = positions[0] - positions[0, 2 + i]
        torch.testing.assert_close(got[0, :, i], encoding.by_distance(distances))


def test_all_layers_of_a_pattern_see_one_sample(monkeypatch):
    calls, ordered = [], SAMPLERS["ordered"].thing
    plain = ordered.draw
    monkeypatch.setattr(ordered, "draw", lambda *a: calls.append(a) or plain(*a))
    model = tiny("rotary*1,t5", "--random-positions", "1000").train()
    model(sentences(2, 6), None, sentences(2, 5, seed=1))
    assert [length for _, length, *_ in calls] == [6, 5]


SHIFT = ("--random-positions", "4", "--position-sampler", "shift")


COUPLED = ("--position-ids", "coupling", "--position-separators", "w1 w2")
NOTICING = {
    "values": lambda: tiny("rotary", "--rotary-value", *SHIFT),
    "some layers": lambda: tiny("rotary,tupe", *SHIFT),
    "an adapted bias": lambda: tiny("dape", "--dape-bias", "fire", "--fire-length", "1", *SHIFT),
    "[CLS]": lambda: masked_language_models.tiny("rotary+t5", "--untie-cls", *SHIFT),
    "tokens without position": lambda: causal_language_models.tiny("rotary", *COUPLED, *SHIFT),
}


@pytest.mark.parametrize("name", NOTICING)
@torch.no_grad()
def test_a_shift_that_something_notices_is_accepted(name, monkeypatch):
    model, tokens = NOTICING[name](), sentences(2, 6)
    tokens[:, 0], tokens[:, 3] = VOCABULARY.bos(), VOCABULARY.eos()
    tokens[:, [2, 4]] = VOCABULARY.index("w1")
    translates = isinstance(model, FairseqEncoderDecoderModel)
    text = (tokens, torch.full((2,), 6), tokens) if translates else (tokens,)
    monkeypatch.setattr(torch, "randint", lambda *a, **k: torch.tensor([[3], [4]]))
    plain = model.eval()(*text)[0]
    moved = model.train()(*text)[0]
    assert (plain - moved).abs().max() > 1e-5


def test_lengths_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="at most the 1024 positions of the encoder"):
        build("roformer_tiny", "--random-positions", "1025")
    model = build("roformer_tiny", "--random-positions", "4").train()
    with pytest.raises(UsageError, match="--random-positions 4: a sequence has 6 tokens"):
        model(sentences(2, 6), None, sentences(2, 3))
    flags = ("--random-positions", "1020", "--position-sampler", "shift")
    model = tiny("learned", *flags).train()
    model(sentences(2, 4), None, sentences(2, 4))
    with pytest.raises(UsageError, match="go up to 1024, and the encoder has 1024"):
        model(sentences(2, 5), None, sentences(2, 3))


SPREAD = ("--random-positions", "40", "--evaluation-positions", "spread")


@pytest.mark.parametrize("number", [7, 40, 41])
def test_spread_positions_are_the_means_of_sorted_samples(number):
    """The i-th of n numbers drawn from 1 … N without replacement has the mean i (N + 1)/(n + 1)."""
    sampler, sizes = sampler_of("ordered", number), torch.tensor([[1], [3], [7]])
    found = sampler.spread(7, sizes)
    for row, (size,) in zip(found.tolist(), sizes.tolist()):
        means = [(i + 1) * (number + 1) / (size + 1) - 1 for i in range(size)]
        assert all(abs(got - mean) <= 0.5 for got, mean in zip(row, means))
        assert all(a < b for a, b in zip(row, row[1:size])) and 0 <= row[0] and max(row) < number
    torch.manual_seed(0)
    drawn = [sampler.draw(3, 1, torch.device("cpu")) for _ in range(4000)]
    mean = torch.cat(drawn).double().mean(0)
    assert (mean - found[1, :3]).abs().max() < 0.5 + 0.05 * number**0.5


@torch.no_grad()
@pytest.mark.parametrize("name", ["learned", "rotary", "t5", "tupe+shaw", "transformer_xl", "xpos"])
def test_spread_positions_of_a_text_depend_on_its_own_length_alone(name):
    """Neither on padding nor on the other texts of a batch; and they are not counted."""
    model, plain = tiny(name, *SPREAD), tiny(name)
    plain.load_state_dict(model.state_dict())
    source, target = sentences(2, 7), sentences(2, 6, seed=1)
    source[0, :3], target[1, 4:] = PAD, PAD  # on the left and on the right
    whole, _ = model(source, None, target)
    first, _ = model(source[:1, 3:], None, target[:1])
    second, _ = model(source[1:], None, target[1:, :4])
    torch.testing.assert_close(whole[:1], first, atol=1e-5, rtol=0)
    torch.testing.assert_close(whole[1:, :4], second, atol=1e-5, rtol=0)
    assert not torch.allclose(plain(source, None, target)[0], whole, atol=1e-3)


def test_spread_positions_are_seen_in_evaluation_alone(monkeypatch):
    model = tiny("t5", *SPREAD)
    source, target = sentences(2, 6), sentences(2, 4, seed=1)
    for given, length in zip(seen_positions(monkeypatch, model, source, None, target), (6, 4)):
        want = torch.arange(1, length + 1).double() * 41 / (length + 1) - 1
        assert given.shape == (2, length) and (given[0] - want).abs().max() <= 0.5
    found = [seen_positions(monkeypatch, model.train(), source, None, target)[0] for _ in range(2)]
    assert not torch.equal(*found) and len(found[0]) == 1


def test_spread_positions_and_a_cache_are_refused():
    model, target = tiny("rotary", *SPREAD), sentences(1, 4)
    source = model.encoder(sentences(1, 5))
    with pytest.raises(UsageError, match="--evaluation-positions spread: .* with a cache; for gen"):
        model.decoder(target, encoder_out=source, incremental_state={})
    with pytest.raises(UsageError, match="--random-positions 40: a sequence has 41 tokens"):
        model.encoder(sentences(1, 41))


@torch.no_grad()
def test_sampled_positions_reach_the_window():
    model = tiny(
        "alibi", "--attention", "local", "--local-window", "6,4", "--random-positions", "500"
    ).double()
    tokens = sentences(1, 30)
    plain = model.encoder(tokens)["encoder_out"][0]
    model.train()
    assert not torch.allclose(model.encoder(tokens)["encoder_out"][0], plain)


def test_a_shift_leaves_tokens_without_position_at_zero():
    flags = ("--random-positions", "30", "--position-sampler", "shift")
    model, source = model_of("digits", "learned", *flags), sentences(3, 9)
    rows = model.encoder.positions.assigner
    counted = torch.arange(9).unsqueeze(0)
    plain = rows.of_batch(source, counted, False).rows
    moved = rows.of_batch(source, counted, True).rows
    assert plain.eq(0).any() and moved[plain == 0].eq(0).all()
    shifts = [set((moved - plain)[row][plain[row] > 0].tolist()) for row in range(3)]
    assert [len(shift) for shift in shifts] == [1, 1, 1] and len(set.union(*shifts)) > 1


@pytest.mark.parametrize("name", ["learned", "rotary", "learned+transformer_xl"])
@torch.no_grad()
def test_language_models_continue_coupled_positions(name):
    model = language_model(name, "--position-ids", "coupling", *RULES["coupling"])
    tokens = sentences(3, 14)
    tokens[:, 0] = VOCABULARY.eos()
    tokens[1] = torch.cat((torch.full((3,), PAD), tokens[1, :11]))
    full, state = model(tokens)[0], {}
    for step in range(1, 15):
        out, _ = model.decoder(tokens[:, :step], incremental_state=state)
        real = tokens[:, step - 1].ne(PAD)
        torch.testing.assert_close(out[real, -1], full[real, step - 1], atol=1e-5, rtol=0)
