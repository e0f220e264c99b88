"""Flags of every kind of sparse attention."""

import pytest
import torch
from support.lists import rows_of
from support.parts import kernel_of

LOCAL = ["--attention", "local", "--local-window"]
KERNELS = {
    "window": [*LOCAL, "6,4"],
    "global": [*LOCAL, "34", "--local-global-tokens", "3"],
    "dilated": [*LOCAL, "6", "--local-dilation", "3", "--local-global-tokens", "1"],
    **{name: flags.split() for name, flags in rows_of("sparse_layers.txt")},  # kernels of packs
}


def registered(*names):
    """A mark that runs a test once for each of the *names* that is a registered kernel."""
    return pytest.mark.parametrize("kernel", [name for name in names if name in KERNELS])


def golden_layer(ref, attention):
    """A layer with a reference's weights; its output projection is the identity."""
    size = ref["inputs"]["x"].size(2) // ref["config"]["heads"]
    layer = kernel_of(attention, head_dim=size, **ref["config"])
    for name, value in ref["state_dict"].items():
        whose, _, part = name.partition(".")
        kind, _, whole = whose.partition("_")
        own = getattr(layer, f"{'global_' * bool(whole)}{kind[0]}_proj")
        getattr(own, part).data.copy_(value)
    torch.nn.init.eye_(layer.out_proj.weight)
    torch.nn.init.zeros_(layer.out_proj.bias)
    return layer
