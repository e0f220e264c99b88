"""Checkpoints of an earlier version load, and give the numbers that they gave there."""

import json

import numpy as np
import pytest
import torch
from golden import DATA, earlier

pytestmark = pytest.mark.formulas

EARLIER = json.loads((DATA / "earlier.json").read_text(encoding="utf-8"))["models"]


@pytest.fixture(scope="module")
def stored():
    with np.load(DATA / "earlier.npz") as outputs:
        yield {int(key): torch.from_numpy(outputs[key]) for key in outputs.files}


@pytest.mark.parametrize("number", range(len(EARLIER)), ids=lambda n: EARLIER[n]["arch"])
def test_names_and_numbers_are_those_of_the_earlier_version(number, stored):
    entry = EARLIER[number]
    if not earlier.is_served(entry["arch"], entry["flags"]):
        pytest.skip("a pack that was deleted had this model")
    model = earlier.build(entry["arch"], entry["flags"])
    assert earlier.digest(model) == entry["state"], earlier.names_and_shapes(model)
    earlier.fill(model)
    # other processors and versions of PyTorch round otherwise
    torch.testing.assert_close(earlier.outputs_of(model), stored[number], rtol=1e-4, atol=1e-4)
