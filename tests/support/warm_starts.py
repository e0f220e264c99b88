"""Checks which tensors a training takes over from another model's checkpoint."""

import re

import torch
from support.commands import read

FRESH = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]


def starting_from(checkpoint, by):
    """Flags to start from *checkpoint* and save it unchanged, after an update with rate zero."""
    fresh = FRESH if by == "--restore-file" else []
    return [by, checkpoint, *fresh, "--lr", "0", "--max-update", "1"]


def carried_over(log, checkpoint, folder):
    """Names logged as left out, and as new; asserts that all other tensors were taken unchanged."""
    said = log.out + log.err
    left_out = sorted(re.findall(r"warm start: left out (\S+)", said))
    new = sorted(re.findall(r"warm start: (\S+) \(.*\) starts untrained", said))
    before, after = read(checkpoint)[0], read(folder / "checkpoint_last.pt")[0]
    common = set(before) & set(after)
    assert common == set(before) - set(left_out) == set(after) - set(new)
    for key in common:
        assert torch.equal(before[key], after[key]), key
    for number, names in re.findall(r"warm start: took (\d+) tensors from \S+: (.*)", said):
        kinds = {re.sub(r"\.layers\.\d+\.", ".layers.*.", key) for key in common}
        assert int(number) == len(common)
        assert {re.sub(r" \(\d+\)$", "", name) for name in names.split(", ")} == kinds
    return left_out, new
