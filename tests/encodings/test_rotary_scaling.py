"""Rotary positions beyond the length of training: frequencies, refusals, the warning."""

import inspect
import logging
import math
from functools import partial

import pytest
import torch
from support.helpers import VOCABULARY, build, decode_in_steps, sentences, tiny
from support.parts import encoding_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.position_ids import POSITION_RULES
from fairseq_posenc.encodings.rotary_scaling import RULES, UNSCALED, Scaling, warn_of_length

SCALED = [rule for rule in RULES if rule != "none"]


def rotary(**flags):
    return encoding_of("rotary", 3, 16, True, **flags).transform


def scaled(rule, factor=4.0, **flags):
    return rotary(rotary_scaling=rule, rotary_scaling_factor=factor, **flags)


def factors_of(rule, pairs):
    """λ of longrope, from 1 for the pair that turns fastest."""
    return tuple(1.0 + i / 2 for i in range(pairs)) if rule == "longrope" else ()


def test_linear_reads_position_m_as_m_over_the_factor():
    positions = torch.tensor([[0, 1, 7, 255]])
    got = scaled("linear").table(positions)
    want = rotary().table(positions.double() / 4)
    torch.testing.assert_close(got, want, atol=1e-7, rtol=1e-6)


def test_ntk_keeps_the_first_frequency_and_divides_the_last_by_the_factor():
    plain, got = UNSCALED.frequencies(16, 500.0), Scaling("ntk", 4.0, 64).frequencies(16, 500.0)
    ratios = (plain / got).tolist()
    assert ratios[0] == pytest.approx(1)
    assert ratios[-1] == pytest.approx(4)
    assert ratios == sorted(ratios)


@pytest.mark.parametrize("length", [128, 512, 4096])
def test_yarn_keeps_pairs_of_many_turns_and_interpolates_those_of_few(length):
    """Peng et al. section 3.2, apart from the ramp between, which the released code rounds."""
    plain = UNSCALED.frequencies(64, 10000.0)
    ratios = plain / Scaling("yarn", 8.0, length).frequencies(64, 10000.0)
    turns = length * plain / (2 * math.pi)
    # the bounds of the ramp are rounded to whole pairs, so up to one pair on either side is on it
    assert (ratios[:-1][turns[1:] > 32] == 1).all()
    assert (ratios[1:][turns[:-1] < 1] - 8).abs().sum() < 1e-9
    between = ratios[(turns < 16) & (turns > 2)]
    assert len(between) > 2 and ((between > 1) & (between < 8)).all()
    assert (ratios.diff() >= -1e-9).all() and ratios[0] == 1 and ratios[-1] == 8


@pytest.mark.parametrize("length", [4, 128, 512, 4096])
def test_untruncated_yarn_by_hand(length):
    """Peng et al. section 3.2: the ramp is linear in the pair, from 32 turns exactly to one."""
    plain = UNSCALED.frequencies(64, 10000.0)
    got = Scaling("yarn_untruncated", 8.0, length).frequencies(64, 10000.0)
    ends = [64 * math.log(length / (n * 2 * math.pi)) / (2 * math.log(1e4)) for n in (32, 1)]
    first, last = max(ends[0], 0.0), max(ends[1], 0.0)
    for i, frequency in enumerate(plain.tolist()):
        share = float(i > last) if last == 0 else min(max((i - first) / (last - first), 0), 1)
        assert got[i].item() == pytest.approx(frequency * (share / 8 + 1 - share))


def test_llama3_by_hand():
    """Pairs that turn more than 4 times in L tokens are kept, and those less than once divided."""
    plain = UNSCALED.frequencies(64, 10000.0)
    got = Scaling("llama3", 8.0, 512).frequencies(64, 10000.0)
    for i, frequency in enumerate(plain.tolist()):
        turns = 512 * frequency / (2 * math.pi)
        kept = min(max((turns - 1) / (4 - 1), 0), 1)
        assert got[i].item() == pytest.approx(frequency * (kept + (1 - kept) / 8))


def test_longrope_by_hand():
    """Each pair has a factor of its own, and the temperature is that of the released code."""
    factors = factors_of("longrope", 8)
    rotation = scaled("longrope", rotary_factors=" ".join(map(str, factors)))
    plain = UNSCALED.frequencies(16, 10000.0).tolist()
    want = [frequency / factor for frequency, factor in zip(plain, factors)]
    assert rotation.rotation(0).frequencies.tolist() == pytest.approx(want)
    assert rotation.temperature == pytest.approx(math.sqrt(1 + math.log(4) / math.log(64)))


def test_longrope_equals_that_of_transformers():
    transformers = pytest.importorskip("transformers")
    init = getattr(transformers.modeling_rope_utils, "ROPE_INIT_FUNCTIONS", {}).get("longrope")
    factors = list(factors_of("longrope", 32))
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_attention_heads=1,
        max_position_embeddings=2048,
        rope_parameters={
            **{"rope_type": "longrope", "rope_theta": 10000.0, "factor": 8.0},
            **{"short_factor": factors, "long_factor": factors},
            "original_max_position_embeddings": 256,
        },
    )
    if init is None or "rope_parameters" not in inspect.signature(type(config)).parameters:
        pytest.skip("another interface in this version of transformers")
    wanted, temperature = init(config, "cpu", seq_len=2048)
    scaling = Scaling("longrope", 8.0, 256, tuple(factors))
    got = scaling.frequencies(64, 10000.0)
    torch.testing.assert_close(got, wanted.double(), atol=0, rtol=1e-6)
    assert scaling.temperature == pytest.approx(temperature, abs=1e-12)


def test_checkpoints_keep_the_factors_and_not_the_name_of_their_file(tmp_path):
    path = tmp_path / "factors.txt"
    path.write_text("1\n1.5, 2\n4e0\n", encoding="utf-8")
    flags = ["--rotary-scaling", "longrope", "--rotary-scaling-factor", "4"]
    model = tiny("rotary", *flags, "--rotary-factors", str(path))
    path.unlink()
    assert model.cfg.rotary_factors == "1.0,1.5,2.0,4.0"
    assert model.decoder.position_map.scaling.factors == (1.0, 1.5, 2.0, 4.0)


@pytest.mark.parametrize(
    "content, message",
    [
        ("1 2 3", "--rotary-factors: has 3 factors, and heads have 4 rotated pairs"),
        ("1 2 0 3", "factors.txt: 0 is no factor; give a file with one number above 0"),
        ("1 2 nan 3", "factors.txt: nan is no factor"),
        ("1 2 -3 inf", "factors.txt: -3 is no factor"),
        ("one two", "factors.txt: is no list of numbers"),
        ("", "factors.txt: is no list of numbers"),
        (b"\xff\xfe", "factors.txt.*UTF-8"),
        (None, "--rotary-factors .*factors.txt: cannot be read"),
    ],
)
def test_files_of_other_factors_are_refused(content, message, tmp_path):
    path = tmp_path / "factors.txt"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    flags = ["--rotary-scaling", "longrope", "--rotary-scaling-factor", "4"]
    with pytest.raises(UsageError, match=message):
        tiny("rotary", *flags, "--rotary-factors", str(path))


@pytest.mark.parametrize(
    "rule, factor",
    [
        ("linear", 1.0),
        ("llama3", 1.0),
        *((rule, 0.1 * math.log(4) + 1) for rule in ("yarn", "yarn_untruncated")),
    ],
)
def test_the_temperature_scales_queries_and_keys_but_no_values(rule, factor):
    q, v = torch.randn(2, 1, 5, 3, 16).unbind()
    rotation = scaled(rule, rotary_value=True)
    turned, _, values = rotation(q, q, v, rotation.table(torch.arange(5)[None]))
    torch.testing.assert_close(turned.norm(dim=-1), q.norm(dim=-1) * factor)
    torch.testing.assert_close(values.norm(dim=-1), v.norm(dim=-1))


def test_the_factor_1_of_each_rule_is_no_scaling():
    for rule in SCALED:
        scaling = Scaling(rule, 1.0, 64, (1.0,) * 8)
        torch.testing.assert_close(scaling.frequencies(16, 1e4), UNSCALED.frequencies(16, 1e4))
        assert scaling.temperature == 1


def test_other_implementations(golden):
    """Frequencies by transformers; its dynamic NTK is ours with a factor by length."""
    reference = golden("rope_inv_freq")
    outputs, compared = reference["outputs"], set()
    wanted = zip(outputs["inv_freq"].double(), outputs["attention_factor"].tolist())
    for case, (frequencies, temperature) in zip(reference["config"]["cases"], wanted):
        rule, length, factor = case["rule"], case["length"], case["factor"]
        if rule == "dynamic":
            now = max(length, case["current"])
            scaling = Scaling("ntk", factor * now / length - (factor - 1), length)
        else:
            scaling = Scaling(rule, factor, length)
        got = scaling.frequencies(64, 10000.0)
        torch.testing.assert_close(got, frequencies, atol=0, rtol=1e-6)
        assert scaling.temperature == pytest.approx(temperature, abs=1e-12)
        compared.add(rule)
    assert len(compared) == 4


def same_parameters(*flags):
    """A tiny RoFormer and the same with *flags*."""
    plain = tiny("rotary")
    other = tiny("rotary", *flags)
    other.load_state_dict(plain.state_dict(), strict=True)
    return plain, other


@pytest.mark.parametrize("rule", SCALED)
@torch.no_grad()
def test_a_scaled_model_decodes_with_a_cache_what_it_computes_at_once(rule):
    flags = ["--rotary-scaling", rule, "--rotary-scaling-factor", "3"]
    factors = factors_of(rule, 4)
    flags += ["--rotary-factors", ",".join(map(str, factors))] if factors else []
    plain, model = same_parameters(*flags, "--rotary-original-length", "8")
    source, target = sentences(2, 20), sentences(2, 18, seed=1)
    full, _ = model(source, None, target)
    assert (full - plain(source, None, target)[0]).abs().max() > 1e-3
    got = decode_in_steps(model, source, target, [5] + [1] * 13)
    torch.testing.assert_close(got, full, atol=1e-5, rtol=0)


def test_the_length_of_training_is_kept_in_the_settings():
    model = build("roformer_tiny", "--max-target-positions", "40", "--max-source-positions", "50")
    assert model.cfg.rotary_original_length == 50
    assert model.decoder.position_map.scaling.length == 50
    model = build("roformer_tiny", "--rotary-original-length", "30")
    assert model.decoder.position_map.scaling.length == 30


def test_a_factor_that_is_no_number_is_refused_by_name():
    with pytest.raises(UsageError, match="--rotary-scaling-factor twice: must be a number"):
        scaled("ntk", "twice")


# --- the warning


@pytest.fixture
def warnings_of(caplog):
    """Counts what is logged while something runs in a fresh run."""

    def count(function):
        warn_of_length.cache_clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="fairseq_posenc"):
            function()
        return [r.getMessage() for r in caplog.records if "of training" in r.getMessage()]

    yield count
    warn_of_length.cache_clear()


def read(model, *lengths):
    with torch.no_grad():
        for length in lengths:
            model(sentences(1, length), None, sentences(1, length))


def test_it_is_given_once_for_both_stacks_and_all_forwards(warnings_of):
    model = tiny("rotary", "--rotary-original-length", "8")
    (message,) = warnings_of(lambda: read(model, 8, 9, 9, 12))
    assert "longer than the 8 tokens of training" in message and "--rotary-scaling" in message
    assert "\n" not in message


def test_decoding_step_by_step_gives_it_once(warnings_of):
    model = tiny("rotary", "--rotary-original-length", "8")
    source, target = sentences(1, 5), sentences(1, 12)
    assert len(warnings_of(lambda: decode_in_steps(model, source, target, [1] * 12))) == 1


GIVEN = [("segments", 3), ("documents", 3), ("digits", 9)]


@pytest.mark.parametrize("rule, least", [row for row in GIVEN if row[0] in POSITION_RULES])
def test_it_counts_the_positions_that_a_rule_gives(rule, least, warnings_of):
    """Every third of 9 tokens ends a segment or document; digits are for a table alone."""
    symbols = ("--position-separators", "w1") if rule != "digits" else ("--position-digits", "w1")
    flags = ("--position-ids", rule, *symbols)
    tokens = torch.full((1, 9), 20)
    tokens[:, 2::3] = VOCABULARY.index("w1")
    for length in (least - 1, least):
        model = tiny("sinusoidal+rotary", "--rotary-original-length", str(length), *flags)
        said = warnings_of(partial(model.encoder, tokens))
        assert len(said) == (length < least)


@pytest.mark.parametrize("name", ["rotary", "alibi", "t5", "sinusoidal", "none"])
def test_it_is_not_given_otherwise(name, warnings_of):
    lengths = ["--max-source-positions", "8", "--max-target-positions", "8"]
    model = tiny(name, *lengths)
    assert model.cfg.rotary_original_length == 8
    assert not warnings_of(lambda: read(model, 8, 5))
    assert not warnings_of(lambda: read(model.train(), 12))
    if name != "rotary":
        assert not warnings_of(lambda: read(model.eval(), 12))


def test_a_scaled_model_gives_another_one_beyond_its_factor(warnings_of):
    flags = ["--rotary-scaling", "yarn", "--rotary-scaling-factor", "2"]
    model = tiny("rotary", "--rotary-original-length", "8", *flags)
    assert not warnings_of(lambda: read(model, 16))
    (message,) = warnings_of(lambda: read(model, 17))
    assert "--rotary-scaling-factor 2" in message
