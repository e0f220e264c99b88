"""Shaw's values, the sizes of its tables, and stored outputs of fairseq2."""

import pytest
import torch
from support.formulas import B, D, H, Parts, assert_attends_as, clip, lengths, random
from support.helpers import build, parameters_of, without_values
from support.parts import places_of

from fairseq_posenc.encodings.base import Content


@lengths
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("per_head", [False, True])
def test_shaws_values_by_hand(per_head, causal, length, keys):
    """Shaw et al. Eq. 3, the second summand."""
    parts = Parts("shaw", causal=causal, shaw_values=True, shaw_per_head=per_head)
    weights = random(B, H, length, keys)
    q, k = random(B, H, length, D), random(B, H, keys, D)
    content = Content(None, q, k, 1.0, places_of(length, keys))
    got = parts.terms.relative_values(content, weights)
    table = parts.terms["shaw"].value_table.weight
    want = torch.zeros(B, H, length, D, dtype=torch.double)
    for t in range(length):
        for j in range(keys):
            row = clip(j - (keys - length + t), -2, 0 if causal else 2) + 2
            vectors = table[row].view(-1, D)  # one, or one for each head
            want[:, :, t] += weights[:, :, t, j, None] * vectors
    torch.testing.assert_close(got, want)
    added = parts.terms.added_values(content)
    assert (added is None) == (length > 1)
    if added is not None:  # Σ_j w_j a_j, with a vector for each key
        torch.testing.assert_close(weights @ added.expand(B, H, keys, D), want)


@pytest.mark.parametrize(
    "file, case",
    [("shaw_values", c) for c in ("full", "padded", "causal", "causal_padded")]
    + [("shaw_cached_query", c) for c in ("full", "causal")],
)
def test_shaw_is_that_of_fairseq2(golden, file, case):
    ref = golden(file)
    flags = {"shaw_max_distance": 4, "shaw_values": True, "causal": "causal" in case}
    parts = Parts("shaw", heads=2, head_dim=8, **flags)
    own = parts.terms["shaw"]
    with torch.no_grad():  # where later keys are hidden, we have no vectors for them
        for table, name in ((own.key_table, "k"), (own.value_table, "v")):
            table.weight.copy_(ref["state_dict"][f"rel_{name}_embed.weight"][: len(table.weight)])
    assert_attends_as(ref, case, parts, ref["inputs"]["q"].size(1), 11)


def test_shaw_base_is_the_transformer_base_with_keys_and_values_clipped_at_16():
    with without_values():
        model = build("shaw_base")
    shapes = {k: tuple(p.shape) for k, p in parameters_of(model).items() if "shaw" in k}
    assert len(shapes) == 2 * 12
    for key, shape in shapes.items():
        assert shape == ((33, 64) if key.startswith("encoder") else (17, 64))
    assert model.encoder.layers[0].fc1.weight.shape == (2048, 512)
