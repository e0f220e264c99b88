"""Rotary positions beyond the length of training: frequencies, refusals, the warning."""

import logging
import math
from functools import partial

import pytest
import torch
from support.helpers import VOCABULARY, build, decode_in_steps, sentences, tiny
from support.parts import encoding_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.position_ids import POSITION_RULES
from fairseq_posenc.encodings.rotary_frequencies import RULES, UNSCALED, Scaling, warn_of_length

pytestmark = pytest.mark.formulas
#: λ of longrope for 32 pairs
FACTORS = tuple(1.0 + i / 2 for i in range(32))


def by_hand(rule, i, base, factor, length):
    """The frequency of pair i (0 to 31); *share* is 1 - γ in the notation of Peng et al."""
    dim, theta = 64, base ** (-2 * i / 64)
    if rule == "ntk":
        return (base * factor ** (dim / (dim - 2))) ** (-2 * i / dim)
    if rule in ("linear", "longrope"):
        return theta / (factor if rule == "linear" else FACTORS[i])
    if rule == "llama3":  # *share* is linear in the number of rotations, from 4 to 1
        share = (4 - length * theta / (2 * math.pi)) / (4 - 1)
    else:  # *share* is linear in i, between the pair with 32 rotations and the pair with 1
        first, last = (
            dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))
            for turns in (32, 1)
        )
        if rule == "yarn":  # the released code rounds the indices of these two pairs
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, dim - 1)
        share = (i - first) / max(last - first, 0.001)
    share = min(max(share, 0), 1)
    return theta * (share / factor + 1 - share)


@pytest.mark.parametrize("length", [4, 128, 512, 4096])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "none"])
def test_frequencies_by_hand(rule, length):
    for base in (500.0, 10000.0):
        got = Scaling(rule, 8.0, length, FACTORS).frequencies(64, base).tolist()
        assert got == pytest.approx([by_hand(rule, i, base, 8.0, length) for i in range(32)])
    unscaled = Scaling(rule, 1.0, length, (1.0,) * 32)
    torch.testing.assert_close(unscaled.frequencies(64, 1e4), UNSCALED.frequencies(64, 1e4))
    assert unscaled.temperature == 1


def test_other_implementations(golden):
    """Compares with transformers, whose dynamic NTK is our NTK with a factor for each length."""
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


@pytest.mark.parametrize(
    "rule, temperature",
    [
        ("linear", 1.0),
        ("llama3", 1.0),
        ("yarn", 0.1 * math.log(4) + 1),
        ("yarn_untruncated", 0.1 * math.log(4) + 1),
        ("longrope", math.sqrt(1 + math.log(4) / math.log(64))),
    ],
)
def test_the_temperature_scales_queries_and_keys_but_no_values(rule, temperature):
    q, v = torch.randn(2, 1, 5, 3, 16).unbind()
    flags = {"rotary_scaling": rule, "rotary_scaling_factor": 4.0, "rotary_value": True}
    if rule == "longrope":
        flags["rotary_factors"] = " ".join(map(str, FACTORS[:8]))
    rotation = encoding_of("rotary", 3, 16, True, **flags).transform
    rotated, _, values = rotation(q, q, v, rotation.table(torch.arange(5)[None]))
    torch.testing.assert_close(rotated.norm(dim=-1), q.norm(dim=-1) * temperature)
    torch.testing.assert_close(values.norm(dim=-1), v.norm(dim=-1))


LONGROPE = ("--rotary-scaling", "longrope", "--rotary-scaling-factor", "4", "--rotary-factors")


def test_checkpoints_keep_the_factors_and_not_the_name_of_their_file(tmp_path):
    path = tmp_path / "factors.txt"
    path.write_text("1\n1.5, 2\n4e0\n", encoding="utf-8")
    model = tiny("rotary", *LONGROPE, str(path))
    assert model.cfg.rotary_factors == "1.0,1.5,2.0,4.0"
    assert model.decoder.position_map.scaling.factors == (1.0, 1.5, 2.0, 4.0)


@pytest.mark.parametrize(
    "content, message",
    [
        ("1 2 3", "--rotary-factors: has 3 factors, but heads have 4 rotated pairs"),
        ("1 2 0 3", "factors.txt: 0 is no valid factor; give a file with one number above 0"),
        ("1 2 nan 3", "factors.txt: nan is no valid factor"),
        ("1 2 3 inf", "factors.txt: inf is no valid factor"),
        ("", "factors.txt: is not a list of numbers"),
        (b"\xff\xfe", "factors.txt.*UTF-8"),
    ],
)
def test_files_of_other_factors_are_refused(content, message, tmp_path):
    path = tmp_path / "factors.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match=message):
        tiny("rotary", *LONGROPE, str(path))


def test_the_length_of_training_is_kept_in_the_settings():
    model = build("roformer_tiny", "--max-target-positions", "40", "--max-source-positions", "50")
    assert model.cfg.rotary_original_length == 50
    assert model.decoder.position_map.scaling.length == 50
    model = build("roformer_tiny", "--rotary-original-length", "30")
    assert model.decoder.position_map.scaling.length == 30


# --- the warning


@pytest.fixture
def warnings_of(caplog):
    """A function that returns the warnings of a call, as if it ran in a new process."""

    def count(function):
        warn_of_length.cache_clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="fairseq_posenc"), torch.no_grad():
            function()
        return [r.getMessage() for r in caplog.records if "of training" in r.getMessage()]

    yield count
    warn_of_length.cache_clear()


def read(model, *lengths):
    for length in lengths:
        model(sentences(1, length), None, sentences(1, length))


def test_it_is_given_once_for_both_stacks_all_forwards_and_all_steps(warnings_of):
    model = tiny("rotary", "--rotary-original-length", "8")
    (message,) = warnings_of(lambda: read(model, 8, 9, 9, 12))
    assert "longer than the 8 tokens of training" in message and "--rotary-scaling" in message
    assert "\n" not in message
    source, target = sentences(1, 5), sentences(1, 12)
    assert len(warnings_of(lambda: decode_in_steps(model, source, target, [1] * 12))) == 1
    flags = ["--rotary-scaling", "yarn", "--rotary-scaling-factor", "2"]
    model = tiny("rotary", "--rotary-original-length", "8", *flags)
    assert not warnings_of(lambda: read(model, 16))
    (message,) = warnings_of(lambda: read(model, 17))
    assert "--rotary-scaling-factor 2" in message


@pytest.mark.parametrize("rule, least", [("segments", 3), ("documents", 3), ("digits", 9)])
def test_it_counts_the_positions_of_a_rule(rule, least, warnings_of):
    """Every third of 9 tokens ends a segment or document; ``digits`` does not affect rotary."""
    if rule not in POSITION_RULES:
        pytest.skip("the rule needs a pack that is not installed")
    symbols = ("--position-separators", "w1") if rule != "digits" else ("--position-digits", "w1")
    flags = ("--position-ids", rule, *symbols)
    tokens = torch.full((1, 9), 20)
    tokens[:, 2::3] = VOCABULARY.index("w1")
    for length in (least - 1, least):
        model = tiny("sinusoidal+rotary", "--rotary-original-length", str(length), *flags)
        said = warnings_of(partial(model.encoder, tokens))
        assert len(said) == (length < least)


@pytest.mark.parametrize("name", ["rotary", "xpos", "alibi", "none"])
def test_it_is_not_given_otherwise(name, warnings_of):
    model = tiny(name, "--max-source-positions", "8", "--max-target-positions", "8")
    assert not warnings_of(lambda: read(model, 8, 5))
    assert not warnings_of(lambda: read(model.train(), 12))
    if name in ("alibi", "none"):
        assert not warnings_of(lambda: read(model.eval(), 12))
