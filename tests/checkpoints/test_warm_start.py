"""Checkpoints that continue with a different encoding, and checkpoints of an earlier version."""

import itertools
import json
import logging
import re

import numpy as np
import pytest
import torch
from golden import DATA, earlier
from support.causal_language_models import tiny as language_model
from support.commands import ROOT
from support.helpers import (
    ENCODER_ENCODINGS,
    EVERY_ENCODING,
    TINY,
    build,
    parameters_of,
    tiny,
)
from support.masked_language_models import tiny as masked_language_model

from fairseq_posenc.encodings import ENCODINGS

pytestmark = pytest.mark.properties


def stock(*flags):
    return build("transformer", *TINY, *flags).eval()


def same(one, other):
    return set(one) == set(other) and all(torch.equal(one[key], other[key]) for key in one)


def load(model, state, caplog):
    """Load strictly, as fairseq does; returns the warnings."""
    with caplog.at_level(logging.WARNING, logger="fairseq_posenc"):
        model.load_state_dict({key: value.clone() for key, value in state.items()}, strict=True)
    return [record.getMessage() for record in caplog.records]


def test_a_stock_transformer_continues_as_a_roformer_and_back(caplog):
    source, roformer, back = stock(), tiny("rotary"), stock()
    load(roformer, source.state_dict(), caplog)
    assert same(parameters_of(roformer), parameters_of(source))
    back.load_state_dict(roformer.state_dict(), strict=True)
    assert same(parameters_of(back), parameters_of(source))


FAMILIES = {
    "translation": (tiny, EVERY_ENCODING),
    "language model": (language_model, EVERY_ENCODING),
    "masked language model": (masked_language_model, ENCODER_ENCODINGS),
}


def named(messages):
    """Two sets: the entries that *messages* report as left out, and those that start untrained."""
    said = "\n".join(messages)
    left_out = re.findall(r"warm start: left out (\S+) ", said)
    new = re.findall(r"warm start: (\S+) \(.*\) starts untrained", said)
    assert len(left_out) + len(new) == len(messages)
    return entries(left_out), entries(new)


def entries(names):
    """*names* without ``_float_tensor``, a buffer of the sinusoids of fairseq 0.12.2."""
    return {name for name in names if "_float_tensor" not in name}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_encoding_continues_as_others(family, caplog):
    """Tensors of an encoding are reported as left out or new; all others are taken over."""
    make, encodings = FAMILIES[family]
    states = {}
    for number, name in enumerate(encodings):
        torch.manual_seed(number)
        model = make(name)
        states[name] = model, {key: value.clone() for key, value in model.state_dict().items()}
    for start, end in itertools.islice(itertools.permutations(encodings, 2), 0, None, 3):
        (model, own), (_, state) = states[end], states[start]
        caplog.clear()
        left_out, new = named(load(model, state, caplog))
        there, wanted = entries(state), entries(own)
        assert left_out == there - wanted and new == wanted - there, (start, end)
        found = model.state_dict()
        assert all(torch.equal(found[key], state[key]) for key in there & wanted)
        assert all(torch.equal(found[key], own[key]) for key in new)
        model.load_state_dict(dict(own), strict=True)


def test_the_documentation_says_what_belongs_to_each_encoding():
    text = (ROOT / "docs" / "checkpoints.md").read_text().partition("### Which swaps keep what")[2]
    rows = re.findall(r"^\| (`.*`) \| (.*?) \|", text.partition("\n## ")[0], re.MULTILINE)
    said = {name: parts for names, parts in rows for name in re.findall(r"`(\w+)`", names)}
    assert sorted(said) == sorted(ENCODINGS)
    without = {name for name, _ in language_model("none").named_parameters()}
    for name, parts in said.items():
        own = {key for key, _ in language_model(name).named_parameters()} - without
        assert bool(own) == (parts != "none"), name
        assert any(".layers." in key for key in own) == ("each layer" in parts), name


def test_anything_else_that_is_missing_or_superfluous_still_fails(caplog):
    state = tiny("rotary").state_dict()
    missing = {k: v for k, v in state.items() if k != "encoder.layers.0.fc1.weight"}
    with pytest.raises(RuntimeError, match=r"encoder\.layers\.0\.fc1\.weight"):
        load(tiny("rotary"), missing, caplog)
    with pytest.raises(RuntimeError, match="something"):
        load(tiny("rotary"), dict(state, **{"encoder.something": torch.zeros(1)}), caplog)


# --- checkpoints of an earlier version


EARLIER = json.loads((DATA / "earlier.json").read_text(encoding="utf-8"))["models"]


@pytest.fixture(scope="module")
def stored():
    with np.load(DATA / "earlier.npz") as outputs:
        yield {int(key): torch.from_numpy(outputs[key]) for key in outputs.files}


@pytest.mark.parametrize("number", range(len(EARLIER)), ids=lambda n: EARLIER[n]["arch"])
@pytest.mark.formulas
def test_names_and_numbers_are_those_of_the_earlier_version(number, stored):
    entry = EARLIER[number]
    if not earlier.is_served(entry["arch"], entry["flags"]):
        pytest.skip("this model needs a pack that is not installed")
    model = earlier.build(entry["arch"], entry["flags"])
    assert earlier.digest(model) == entry["state"], earlier.names_and_shapes(model)
    earlier.fill(model)
    # other processors and versions of PyTorch round differently
    torch.testing.assert_close(earlier.outputs_of(model), stored[number], rtol=1e-4, atol=1e-4)
