"""The tests' memory for Hydra changes no configuration."""

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from support import quick_hydra

LINES = [
    ["--arch", "transformer", "--optimizer", "adam", "--lr", "0.01"],
    ["--arch", "roformer_tiny", "--max-epoch", "3", "--save-dir", "it's here", "--seed", "7"],
    ["--arch", "roformer_masked_lm_tiny", "--task", "masked_lm", "--criterion", "masked_lm"],
]


def compose(line):
    arguments = options.parse_args_and_arch(options.get_training_parser(), ["data", *line])
    return convert_namespace_to_omegaconf(arguments)


@pytest.mark.skipif(not quick_hydra.replaced, reason="an extra: Hydra 1.0 is left as it is")
def test_remembered_compositions_are_those_of_hydra(monkeypatch):
    first = [compose(line) for line in LINES]
    for config in first:  # what a command does to its own is not remembered
        config.common.seed = 99
    found = [compose(line) for line in LINES]
    for owner, name, before in quick_hydra.replaced:
        monkeypatch.setattr(owner, name, before)
    assert found == [compose(line) for line in LINES]
