"""The masked-LM family: sizes, [CLS], segments, heads, and the released TUPE models."""

from argparse import Namespace
from unittest import mock

import pytest
import torch
from fairseq import models
from helpers import (
    ENCODER_ENCODINGS,
    PAD,
    VOCABULARY,
    copies,
    encoding_of,
    model_settings,
    parse,
    sentences,
    without_values,
)

from fairseq_posenc.encodings import parse_encodings
from fairseq_posenc.errors import UsageError

CLS = VOCABULARY.bos()
SMALL = [
    *("--encoder-layers", "2", "--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64"),
    *("--encoder-attention-heads", "4", "--dropout", "0", "--attention-dropout", "0"),
]


class Vocabulary(list):
    """As much of a dictionary as a model needs, of any size."""

    pad = staticmethod(lambda: PAD)
    eos = staticmethod(VOCABULARY.eos)
    __hash__ = object.__hash__


def build(arch, *flags, vocabulary=VOCABULARY, length=64, **settings):
    """A model of *arch*, built as fairseq-train does."""
    cfg = model_settings(arch, "--tokens-per-sample", str(length), *flags, task="masked_lm")
    settings = Namespace(**{"_name": "masked_lm", "tokens_per_sample": length, **settings})
    return models.build_model(cfg, Namespace(source_dictionary=vocabulary, cfg=settings)).eval()


@copies
def tiny(encoding, *flags, **settings):
    flags = ["--position-encoding", encoding, *SMALL, *flags]
    return build("posenc_masked_lm", *flags, **settings)


def texts(batch=2, length=9):
    tokens = sentences(batch, length)
    tokens[:, 0] = CLS
    return tokens


# --- sizes


INITIALISED = ("fairseq.models.roberta.model", "fairseq_posenc.modules.masked_lm")


def count(arch, vocabulary=30522):
    """Parameters of *arch* with BERT's vocabulary, or one of another size, and 512 positions."""
    bert = [mock.patch(f"{name}.init_bert_params") for name in INITIALISED]
    with without_values(), bert[0], bert[1]:  # it copies values
        model = build(arch, vocabulary=Vocabulary([""] * vocabulary), length=512)
    return sum(p.numel() for p in model.parameters())


@pytest.fixture(scope="module")
def bert_base():
    return count("bert_a_masked_lm_base")


def test_bert_base_has_110_million_parameters(bert_base):
    assert bert_base == pytest.approx(110e6, rel=0.01)


@pytest.mark.parametrize("arch, relative", [("tupe_a", 0), ("tupe_r", 32 * 12)])
def test_tupe_adds_two_projections(bert_base, arch, relative):
    """Section 3.3: about 1.18 M, 2 x 768 x 768."""
    added = count(f"{arch}_masked_lm_base") - bert_base
    assert added == pytest.approx(1.18e6, rel=0.003)
    # beside the projections: their biases, a norm, p_θ1; fairseq's table has two rows more
    assert added == 2 * 768 * 768 + 2 * 768 + 2 * 768 + 768 - 2 * 768 + relative


@pytest.mark.parametrize(
    "arch, added",
    [
        ("roformer", -514 * 768),  # no table
        ("bert_r", 32 * 12),
        ("tupe_a_tie_cls", 2 * 768 * 768 + 2 * 768),
        ("bert_ad", 2 * 768 * 768 + 2 * 768),
    ],
)
def test_the_others_differ_by_their_positions_only(bert_base, arch, added):
    assert count(f"{arch}_masked_lm_base") - bert_base == added


# --- the formulas


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
    positions = torch.arange(7)[None]
    got = terms(positions, positions)[0]
    tied = sum(term(positions, positions)[0] for term in terms.values())
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
    positions = torch.arange(6)[None]
    got = term(positions[:, 2:], positions)[0]
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


# --- [CLS] and padding


@pytest.mark.parametrize("encoding", ENCODER_ENCODINGS)
def test_padding_changes_nothing_with_cls_untied_or_not(encoding):
    shared = any(e.shared for e in parse_encodings(encoding))
    untie = ["--untie-cls"] if shared else []
    for flags in ([], untie):
        model = tiny(encoding, *flags)
        short = texts(1, 6)
        padding = torch.full((1, 3), PAD)
        want, _ = model(short)
        right, _ = model(torch.cat((short, padding), 1))
        left, _ = model(torch.cat((padding, short), 1))
        torch.testing.assert_close(right[:, :6], want, atol=2e-5, rtol=0)
        torch.testing.assert_close(left[:, 3:], want, atol=2e-5, rtol=0)


def test_causal_models_see_no_later_token():
    model = tiny("t5", "--causal")
    tokens = texts(1)
    changed = tokens.clone()
    changed[0, 5:] = 7
    got, want = model(changed)[0], model(tokens)[0]
    assert torch.equal(got[:, :5], want[:, :5]) and not torch.equal(got[:, 5:], want[:, 5:])


@pytest.mark.parametrize(
    "arch, flags, words",
    [
        ("posenc_masked_lm", ["--position-encoding", "rotary", "--untie-cls"], "no content-free"),
        ("posenc_masked_lm", ["--position-encoding", "tupe", "--untie-cls", "--cls-reset", "all"],
         "--cls-reset all: must be sum or each"),
        ("posenc_masked_lm", ["--position-encoding", "tupe", "--num-positions", "32"],
         "--max-positions 64: .* table of 32 positions"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(arch, flags, words):
    with pytest.raises(UsageError, match=words):
        build(arch, *SMALL, *flags)


def test_untied_cls_is_refused_where_the_input_has_none():
    with pytest.raises(UsageError, match=r"--untie-cls: .*encoder does not start with a \[CLS\]"):
        parse("posenc_transformer", "--position-encoding", "tupe", "--untie-cls")
    with pytest.raises(UsageError, match="--untie-cls: without --init-token 0"):
        tiny("tupe", "--untie-cls", _name="sentence_prediction", init_token=None)


@pytest.mark.parametrize("encoding", ["tupe", "learned", "bert_ad"])
def test_a_sequence_longer_than_the_table_names_both_lengths(encoding):
    with pytest.raises(UsageError, match="sequence of 65 tokens .* table of 64 positions"):
        tiny(encoding)(texts(1, 65))


def test_without_a_table_any_length_is_welcome():
    for encoding in ("rotary", "t5", "alibi", "none", "sinusoidal"):
        tiny(encoding)(texts(1, 70))


# --- segments, sizes, heads


def test_segments_are_a_table_and_default_to_the_first():
    model = tiny("rotary", "--num-segments", "2")
    tokens = texts()
    first, second = torch.zeros_like(tokens), torch.zeros_like(tokens)
    second[:, 5:] = 1
    assert torch.equal(model(tokens)[0], model(tokens, first)[0])
    assert not torch.equal(model(tokens)[0], model(tokens, segment_labels=second)[0])


def test_embeddings_may_be_smaller_than_the_layers():
    model = tiny("tupe", "--encoder-input-dim", "16").train()
    assert model.encoder.sentence_encoder.embed_tokens.weight.shape == (len(VOCABULARY), 16)
    logits = model(texts())[0]
    assert logits.shape == (2, 9, len(VOCABULARY))
    logits.sum().backward()


def test_epsilon_reaches_every_norm():
    model = tiny("tupe", "--layer-norm-eps", "1e-12")
    norms = {n: m.eps for n, m in model.named_modules() if hasattr(m, "normalized_shape")}
    assert len(norms) == 1 + 1 + 2 * 2 + 1 and set(norms.values()) == {1e-12}


def test_masked_tokens_alone_are_projected():
    model = tiny("t5", "--untie-weights-roberta")
    tokens = texts()
    masked = torch.rand(tokens.shape) < 0.3
    torch.testing.assert_close(model(tokens, masked_tokens=masked)[0], model(tokens)[0][masked])


def test_heads_of_sentences_and_of_tokens():
    model = tiny("rotary", "--load-checkpoint-heads")
    model.register_classification_head("topic", num_classes=3)
    model.register_token_head("tag", 5)
    tokens = texts()
    topic, tag = (model(tokens, classification_head_name=name)[0] for name in ("topic", "tag"))
    assert topic.shape == (2, 3) and tag.shape == (2, 9, 5)
    other = tiny("rotary", "--load-checkpoint-heads")
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other(tokens, classification_head_name="tag")[0], tag)
    assert torch.equal(other(tokens, classification_head_name="topic")[0], topic)
    without = tiny("rotary")
    without.load_state_dict(model.state_dict(), strict=True)
    assert not without.token_heads and not without.classification_heads


def test_stock_roberta_and_ours_compute_the_same():
    flags = [*SMALL, "--tokens-per-sample", "64"]
    cfg = parse("roberta_base", *flags, task="masked_lm").model
    settings = Namespace(_name="masked_lm", tokens_per_sample=64)
    stock = models.build_model(cfg, Namespace(source_dictionary=VOCABULARY, cfg=settings,
                                              max_positions=lambda: 64)).eval()  # fmt: skip
    ours = build("bert_a_masked_lm_base", *SMALL)
    ours.load_state_dict(stock.state_dict(), strict=True)
    tokens = texts()
    tokens[1, 6:] = PAD
    got, want = ours(tokens)[0], stock(tokens)[0]
    torch.testing.assert_close(got[tokens != PAD], want[tokens != PAD], atol=1e-5, rtol=0)


# --- released models


def from_released(state):
    """Our names for the parameters of the TUPE authors' code."""
    names = {
        "decoder.": "encoder.",
        "emb_layer_norm": "layernorm_embedding",
        "pos_q_linear": "position_bias.tupe.q_proj",
        "pos_k_linear": "position_bias.tupe.k_proj",
        "pos_ln": "position_bias.tupe.norm",
    }
    ours = {}
    for key, value in state.items():
        for theirs, name in names.items():
            key = key.replace(theirs, name)
        stem, _, last = key.rpartition(".")
        bias = "encoder.sentence_encoder.position_bias."
        if last in ("in_proj_weight", "in_proj_bias"):
            for letter, part in zip("qkv", value.chunk(3)):
                ours[f"{stem}.{letter}_proj.{last[8:]}"] = part
        elif stem.endswith(".pos"):
            ours[bias + "tupe.cls.weight"], ours[bias + "tupe.table.weight"] = value[:1], value[1:]
        elif stem.endswith("relative_attention_bias"):
            ours[bias + "t5.table.weight"], ours[bias + "theta"] = value[:32], value[[16, 32]]
        else:
            ours[key] = value
    return ours


@pytest.mark.parametrize("name, encoding", [("tupe_a_mlm", "tupe"), ("tupe_r_mlm", "tupe+t5")])
def test_the_released_tupe_models(reference_of, name, encoding):
    reference = reference_of(name)
    vocabulary = Vocabulary(reference["meta"]["symbols"])
    model = tiny(encoding, "--untie-cls", "--cls-reset", "each", vocabulary=vocabulary)
    model.load_state_dict(from_released(reference["state_dict"]), strict=True)
    positions = torch.arange(12)[None]
    bias = model.encoder.sentence_encoder.position_bias(positions, positions)[0]
    torch.testing.assert_close(bias, reference["outputs"]["bias"], atol=1e-5, rtol=0)
    for kind in ("full", "padded"):
        logits, _ = model(reference["inputs"][f"tokens_{kind}"])
        torch.testing.assert_close(
            logits, reference["outputs"][f"logits_{kind}"], atol=1e-4, rtol=0
        )
