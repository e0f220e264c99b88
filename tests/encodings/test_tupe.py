"""TUPE's content-free logits by their formulas, and what it tried instead (section 5)."""

import pytest
import torch
from support.helpers import PAD
from support.masked_language_models import texts, tiny
from support.parts import encoding_of, places_of

from fairseq_posenc.encodings import Places


def reset_by_hand(v, theta1, theta2):
    """TUPE Eq. 9 for one head, v (T, T)."""
    out = v.clone()
    for i in range(v.size(0)):
        for j in range(v.size(1)):
            if i == 0:
                out[i, j] = theta1
            elif j == 0:
                out[i, j] = theta2
    return out


def untied_terms(encoding, **flags):
    composed = encoding_of(encoding, has_cls=True, untie_cls=True, **flags)
    terms = composed.shared_bias
    for parameter in terms.parameters():
        torch.nn.init.normal_(parameter)
    return terms.double()


def projected(term, p):
    """U^Q and U^K of normalised rows p (N, C), by head (N, H, D)."""
    mean, variance = p.mean(-1, keepdim=True), p.var(-1, keepdim=True, unbiased=False)
    p = (p - mean) / (variance + 1e-5).sqrt() * term.norm.weight + term.norm.bias
    return [(p @ f.weight.t() + f.bias).view(len(p), 4, 8) for f in (term.q_proj, term.k_proj)]


@pytest.mark.parametrize(
    "encoding, reset",
    [("tupe", "sum"), ("tupe+t5", "sum"), ("tupe+t5", "each"), ("t5", "sum"), ("alibi", "each")],
)
def test_equation_9_resets_the_sum_of_all_content_free_logits(encoding, reset):
    terms = untied_terms(encoding, cls_reset=reset)
    got = terms(places_of(7))[0]
    tied = sum(term(places_of(7))[0] for term in terms.values())
    for h in range(4):
        theta = torch.zeros(2, dtype=torch.double)
        if "tupe" in terms:
            rows = torch.cat((terms["tupe"].cls.weight, terms["tupe"].table.weight[:1]))
            q, k = projected(terms["tupe"], rows)
            theta = theta + torch.stack([q[n, h] @ k[n, h] for n in (0, 1)]) / (2 * 8) ** 0.5
        if terms.theta is not None:
            theta = theta + terms.theta[:, h]
        torch.testing.assert_close(got[h], reset_by_hand(tied[h], *theta))
    assert (terms.theta is None) == (encoding.startswith("tupe") and reset == "sum")


def test_equation_7_is_the_correlation_of_projected_positions():
    term = untied_terms("tupe")["tupe"]
    q, k = projected(term, term.table.weight)
    got = term(places_of(4, 6))[0]
    for h in range(4):
        for i in range(4):
            for j in range(6):
                assert got[h, i, j].item() == pytest.approx(
                    (q[i + 2, h] @ k[j, h]).item() / (2 * 8) ** 0.5
                )


def test_bert_ad_keeps_all_four_correlations():
    """TUPE section 4.3: words and positions projected apart, 1/sqrt(4d) on the sum."""
    encoding = encoding_of("bert_ad")
    encoding.transform.double()
    q, k = (torch.randn(1, 5, 4, 8, dtype=torch.double) for _ in "qk")
    positions = torch.arange(5)[None]
    got_q, got_k, _ = encoding.transform(q, k, k, encoding.transform.table(positions))
    p_q, p_k = projected(encoding.transform, encoding.transform.positions.weight[:5])
    for h in range(4):
        for i in range(5):
            for j in range(5):
                x_i, x_j, p_i, p_j = q[0, i, h], k[0, j, h], p_q[i, h], p_k[j, h]
                want = (x_i @ x_j + x_i @ p_j + p_i @ x_j + p_i @ p_j) / (4 * 8) ** 0.5
                logit = encoding.scale * (got_q[0, i, h] @ got_k[0, j, h])
                assert logit.item() == pytest.approx(want.item())


def test_content_free_logits_are_computed_once_and_for_no_sentence_in_particular(monkeypatch):
    model = tiny("tupe+t5", "--untie-cls")
    shapes = []
    terms = model.encoder.sentence_encoder.position_bias
    terms.register_forward_hook(lambda *call: shapes.append(tuple(call[2].shape)))
    tokens = texts(3)
    tokens[1, 6:] = PAD
    model(tokens)
    assert shapes == [(1, 4, 9, 9)]


@torch.no_grad()
def test_free_logits_of_two_positions():
    encoding = encoding_of("tupe", heads=3, tupe_free=True, untie_cls=True, has_cls=True)
    module = encoding.shared_bias["tupe"]
    assert module.free.shape == (3, 64, 64) and sum(1 for _ in module.parameters()) == 1
    padded = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])  # two sentences, one padded
    got = module(Places(padded[:, 2:], padded, 5))
    for b in range(2):
        for t in range(3):
            want = module.free[:, padded[b, t + 2], padded[b]]
            assert torch.equal(got[b, :, t], want)
