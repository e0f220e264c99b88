"""--random-positions: the positions in training and in evaluation, and refusals."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import FairseqEncoderDecoderModel
from omegaconf import OmegaConf
from support import masked_language_models
from support.helpers import PAD, VOCABULARY, build, parse, sentences, tiny
from support.parts import encoding_flags, encoding_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.averaging import settings_to_match
from fairseq_posenc.checkpoints.inherit import inherit
from fairseq_posenc.checkpoints.overrides import apply_overrides
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.resuming import check_settings_of
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.models import FAMILIES
from fairseq_posenc.packs.drawn_positions.samplers import SAMPLERS, DrawnPositions
from tests.configuration.test_roles import checkpoint_of

pytestmark = pytest.mark.properties
TAKERS = [name for name, entry in ENCODINGS.items() if entry.takes_positions]
#: encodings in gated units, which support no encoding of values
IN_UNITS = [f"softmax:{name}" for name in TAKERS if name != "nezha"]


def sampler_of(name, number):
    return SAMPLERS[name].thing(Namespace(random_positions=number))


def test_a_sample_is_sorted_distinct_and_uniform():
    counts, sampler = torch.zeros(20), sampler_of("ordered", 20)
    assert sampler.limit(5) == 20
    for _ in range(500):
        (sample,) = sampler.draw(5, 3, torch.device("cpu"))
        assert sample.diff().gt(0).all() and sample.min() >= 0 and sample.max() < 20
        counts[sample] += 1
    assert counts.min() > 85 and counts.max() < 165  # the mean is 125


def test_every_shift_is_drawn_and_differs_between_sequences():
    sampler = sampler_of("shift", 6)
    drawn = sampler.draw(4, 700, torch.device("cpu"))
    assert drawn.shape == (700, 4) and drawn.diff().eq(1).all()
    counts = drawn[:, 0].bincount()
    assert len(counts) == 7 and counts.min() > 65 and counts.max() < 140  # the mean is 100
    assert drawn.max() < sampler.limit(4) == 10


@pytest.mark.parametrize("name", SAMPLERS)
def test_padded_texts_have_the_first_of_a_sample_and_an_untied_cls_position_0(name):
    tokens, counted = sentences(2, 4), torch.tensor([[0, 0, 0, 1], [0, 1, 2, 3]])
    for has_cls in (False, True):
        stack = encoding_of("tupe", has_cls=has_cls).stack
        flags = {"random_positions": 40, "position_sampler": name, "untie_cls": has_cls}
        made, seen = DrawnPositions(encoding_flags("tupe", **flags), stack, VOCABULARY), set()
        for _ in range(5):
            found = made.of_batch(tokens, counted, True).places.keys
            assert found[1].diff().gt(0).all() and (name == "shift" or found[0, 3] == found[-1, 1])
            assert found[0, 0] == found[0, 2] and (found[1, 0] == 0 or not has_cls)
            seen.add(int(found[1, 1]))
        assert len(seen) > 1 and made.of_batch(tokens, counted, False) is None


@pytest.mark.parametrize("name", ["sinusoidal", "learned+t5", "learned+transformer_xl"])
@torch.no_grad()
def test_shape_moves_each_sequence_and_leaves_distances_alone(name, monkeypatch):
    """SHAPE: position vectors added to embeddings are shifted; terms of distances do not change."""
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
@pytest.mark.parametrize("name", [*TAKERS, *IN_UNITS, "local:alibi"])
def test_every_encoding_with_positions_learns_them(name):
    """Training draws new positions for every batch; evaluation is as without the flag."""
    plain, model = tiny(name), tiny(name, "--random-positions", "1000")
    model.load_state_dict(plain.state_dict())
    for parameter in plain.parameters():  # some are initialised with zeros
        torch.nn.init.normal_(parameter, std=0.5)
    model.load_state_dict(plain.state_dict())
    source, target = sentences(2, 6), sentences(2, 5, seed=1)
    assert torch.equal(model(source, None, target)[0], plain(source, None, target)[0])
    model.train()
    first, second = (model(source, None, target)[0] for _ in range(2))
    assert not torch.allclose(first, second, atol=1e-6)


def test_all_layers_of_a_pattern_see_one_sample(monkeypatch):
    calls, ordered = [], SAMPLERS["ordered"].thing
    plain = ordered.draw
    monkeypatch.setattr(ordered, "draw", lambda *a: calls.append(a) or plain(*a))
    model = tiny("rotary*1,t5", "--random-positions", "1000").train()
    model(sentences(2, 6), None, sentences(2, 5, seed=1))
    assert [length for _, length, *_ in calls] == [6, 5]


SHIFT = ("--random-positions", "4", "--position-sampler", "shift")
NOTICING = {
    "values": lambda: tiny("rotary", "--rotary-value", *SHIFT),
    "some layers": lambda: tiny("rotary,tupe", *SHIFT),
    "an adapted bias": lambda: tiny("dape", "--dape-bias", "fire", "--fire-length", "1", *SHIFT),
    "[CLS]": lambda: masked_language_models.tiny("rotary+t5", "--untie-cls", *SHIFT),
}


@pytest.mark.parametrize("name", NOTICING)
@torch.no_grad()
def test_a_shift_that_something_notices_is_accepted(name, monkeypatch):
    model, tokens = NOTICING[name](), sentences(2, 6)
    tokens[:, 0] = VOCABULARY.bos()
    translates = isinstance(model, FairseqEncoderDecoderModel)
    text = (tokens, torch.full((2,), 6), tokens) if translates else (tokens,)
    monkeypatch.setattr(torch, "randint", lambda *a, **k: torch.tensor([[3], [4]]))
    plain = model.eval()(*text)[0]
    moved = model.train()(*text)[0]
    assert (plain - moved).abs().max() > 1e-5


SPREAD = ("--random-positions", "40", "--evaluation-positions", "spread")


@pytest.mark.parametrize("number", [7, 40, 41])
def test_spread_positions_are_the_means_of_sorted_samples(number):
    """The i-th smallest of n numbers drawn from 1 … N without replacement has mean i(N+1)/(n+1)."""
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
    """They do not depend on padding or other texts, and differ from counted positions."""
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
    drawn = [model.train()(source, None, target)[0] for _ in range(2)]
    assert not torch.allclose(*drawn, atol=1e-6)


def test_lengths_that_do_not_fit_and_spread_positions_with_a_cache_are_refused():
    text, flags = sentences(2, 5), ("--random-positions", "1020", "--position-sampler", "shift")
    with pytest.raises(UsageError, match="--random-positions 4: a sequence has 5 tokens"):
        build("roformer_tiny", "--random-positions", "4").train()(text, None, text)
    model = tiny("learned", *flags).train()
    model(text[:, :4], None, text[:, :4])
    with pytest.raises(UsageError, match="go up to 1024, but the encoder has 1024"):
        model(text, None, text)
    model = tiny("rotary", *SPREAD)
    with pytest.raises(UsageError, match="--evaluation-positions spread: .* with a cache; for gen"):
        model.decoder(text, encoder_out=model.encoder(text), incremental_state={})
    with pytest.raises(UsageError, match="--random-positions 40: a sequence has 41 tokens"):
        model.encoder(sentences(1, 41))


def test_a_shift_leaves_tokens_without_position_at_zero():
    flags = ["--position-ids", "digits", "--position-digits", " ".join(f"w{n}" for n in range(30))]
    flags += ["--random-positions", "30", "--position-sampler", "shift"]
    model, source = tiny("learned", *flags), sentences(3, 9)
    rows = model.encoder.assigner
    counted = torch.arange(9).unsqueeze(0)
    plain = rows.of_batch(source, counted, False).rows
    moved = rows.of_batch(source, counted, True).rows
    assert plain.eq(0).any() and moved[plain == 0].eq(0).all()
    shifts = [set((moved - plain)[row][plain[row] > 0].tolist()) for row in range(3)]
    assert [len(shift) for shift in shifts] == [1, 1, 1] and len(set.union(*shifts)) > 1


def spread(number, evaluation="spread"):
    """The settings of a masked language model with --random-positions *number*."""
    given = ["--random-positions", str(number), "--evaluation-positions", evaluation]
    return parse("roformer_masked_lm_tiny", *given, task="masked_lm")


def test_the_range_of_random_positions_is_part_of_a_model_that_spreads_them():
    counted, other = {"evaluation_positions": "counted"}, {"random_positions": 32}

    def overridden(cfg, **overrides):
        state = {"cfg": OmegaConf.create({"task": {}, "model": checkpoint_of(cfg)["cfg"]["model"]})}
        apply_overrides(state, overrides, "x.pt")

    for cfg in (spread(64), spread(64, "counted")):
        overridden(cfg, **counted, **other)  # has an effect only in training
        overridden(cfg, evaluation_positions="spread", random_positions=64)
        with pytest.raises(UsageError, match="random_positions=32: x.pt was trained with 64"):
            overridden(cfg, evaluation_positions="spread", **other)
    with pytest.raises(UsageError, match="random_positions=32: x.pt was trained with 64"):
        overridden(spread(64), **other)
    trained = ((64, "spread"), (32, "spread"), (64, "counted"), (32, "counted"))
    compared = [settings_to_match(checkpoint_of(spread(*each))) for each in trained]
    assert compared[0] != compared[1] and compared[2] == compared[3]


def test_spread_positions_are_resumed_and_fine_tuned_with_their_range(tmp_path):
    path, family = tmp_path / "checkpoint_last.pt", FAMILIES["posenc_masked_lm"]
    torch.save(checkpoint_of(spread(64)), path)
    with pytest.raises(UsageError, match="--random-positions 32: .* was trained with 64; give ano"):
        check_settings_of(str(path), read_checkpoint(path), spread(32), resumes=True)
    check_settings_of(str(path), read_checkpoint(path), spread(32, "counted"), resumes=True)
    for given, inherited in ({}, 64), ({"evaluation_positions": "counted"}, None):
        args = Namespace(task="sentence_prediction", finetune_from_model=str(path), **given)
        inherit(args, family.dataclass, family.model, {})
        assert getattr(args, "random_positions", None) == inherited
