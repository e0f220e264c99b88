"""What TUPE tried instead of projected positions (section 5)."""

import torch
from support.helpers import encoding_of


@torch.no_grad()
def test_free_logits_of_two_positions():
    encoding = encoding_of("tupe", heads=3, tupe_free=True, untie_cls=True, has_cls=True)
    module = encoding.shared_bias["tupe"]
    assert module.free.shape == (3, 64, 64) and sum(1 for _ in module.parameters()) == 1
    padded = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])  # two sentences, one padded
    got = module(padded[:, 2:], padded)
    for b in range(2):
        for t in range(3):
            want = module.free[:, padded[b, t + 2], padded[b]]
            assert torch.equal(got[b, :, t], want)
