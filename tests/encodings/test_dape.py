"""DAPE against the paper's formula, by loops."""

import math

import pytest
import torch
from support.formulas import B, D, H, Parts, lengths, random
from support.helpers import sentences, tiny

from fairseq_posenc.encodings import dape
from fairseq_posenc.encodings.alibi import slopes


def static_of(own, kind, h, i, j):
    """The bias of a paper for a causal pair."""
    if kind == "alibi":
        return -slopes(H)[h] * (i - j)
    if kind == "kerple":
        r1, r2 = own.bias.scale[h].exp(), own.bias.shape[h].exp()
        return float(-r1 * math.log(1 + float(r2) * (i - j)))
    c, threshold = float(own.bias.log_c.exp()), float(own.bias.log_length.exp())
    ratio = math.log(c * (i - j) + 1) / math.log(c * max(threshold, i) + 1)
    hidden = (own.bias.weight_in * ratio + own.bias.bias_in).relu()
    return float(own.bias.weight_out[h] @ hidden + own.bias.bias_out[h])


@lengths
@pytest.mark.parametrize("segment", [1, 2**22])
@pytest.mark.parametrize("kind", ["alibi", "kerple", "fire"])
def test_logits_are_those_of_the_paper(monkeypatch, kind, segment, length, keys):
    monkeypatch.setattr(dape, "_SEGMENT", segment)
    parts = Parts("dape", causal=True, dape_bias=kind, dape_width=5)
    own = parts.terms["dape"]
    q, k = random(B, H, length, D), random(B, H, keys, D)
    got = parts.logits(q, k, 0.3)
    for b in range(B):
        for t in range(length):
            i = keys - length + t
            for j in range(i + 1):
                a = [0.3 * float(q[b, h, t] @ k[b, h, j]) for h in range(H)]
                static = [static_of(own, kind, h, i, j) for h in range(H)]
                hidden = own.first.weight @ torch.tensor(a + static).double() + own.first.bias
                hidden = torch.where(hidden > 0, hidden, 0.01 * hidden)
                want = torch.tensor(static).double() + own.second.weight @ hidden + own.second.bias
                torch.testing.assert_close(got[b, :, t, j], want, atol=1e-5, rtol=1e-5)


def test_segments_change_no_gradient(monkeypatch):
    source, target, found = sentences(2, 7), sentences(2, 6, seed=1), []
    model = tiny("dape").double()
    for segment in (1, 2**22):
        monkeypatch.setattr(dape, "_SEGMENT", segment)
        model.zero_grad()
        model(source, None, target)[0].pow(2).mean().backward()
        found.append([p.grad.clone() for p in model.parameters()])
    for one, whole in zip(*found):
        torch.testing.assert_close(one, whole, atol=1e-9, rtol=1e-6)


@torch.no_grad()
def test_without_a_network_it_is_the_bias():
    model, plain = tiny("dape", "--dape-bias", "alibi"), tiny("alibi")
    model.load_state_dict(plain.state_dict(), strict=False)
    for name, parameter in model.named_parameters():
        if "dape.second" in name:
            parameter.zero_()
    source, target = sentences(2, 7), sentences(2, 6, seed=1)
    got, want = (each(source, None, target)[0] for each in (model, plain))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


@torch.no_grad()
def test_logits_are_those_of_the_authors_code(golden):
    reference = golden("dape")
    config = reference["config"]
    parts = Parts(
        "dape", causal=True, **{k: config[k] for k in ("heads", "dape_bias", "dape_width")}
    )
    own = parts.terms["dape"]
    for name, value in reference["state_dict"].items():
        own.get_parameter(name).copy_(value)
    products = reference["inputs"]["products"].double()
    keys = torch.eye(products.size(-1)).double()[None, None]
    got = (products + parts.logits(products, keys)).tril()
    torch.testing.assert_close(got.float(), reference["outputs"]["logits"], atol=1e-5, rtol=1e-5)
