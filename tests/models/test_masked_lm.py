"""The masked-LM family: sizes, [CLS], padding, segments and heads."""

from argparse import Namespace

import pytest
import torch
from fairseq import models
from support.helpers import ENCODER_ENCODINGS, PAD, VOCABULARY, assert_causal, parse
from support.masked_language_models import SMALL, build, count, texts, tiny

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import parse_encodings

pytestmark = pytest.mark.formulas


def test_sizes_of_the_presets_differ_by_their_positions_only():
    """BERT-base has 110 M, and TUPE (section 3.3) adds about 1.18 M, 2 x 768 x 768."""
    bert, projections = count("bert_a_masked_lm_base"), 2 * 768 * 768 + 2 * 768
    assert bert == pytest.approx(110e6, rel=0.01)
    for arch, added in (
        ("roformer", -514 * 768),  # no table
        ("bert_r", 32 * 12),
        ("bert_ad", projections),
        ("tupe_a_tie_cls", projections),
        # a norm and p_θ1; fairseq's table has two rows more
        ("tupe_a", projections + 2 * 768 + 768 - 2 * 768),
        ("tupe_r", projections + 2 * 768 + 768 - 2 * 768 + 32 * 12),
    ):
        assert count(f"{arch}_masked_lm_base") - bert == added, arch


@pytest.mark.parametrize("encoding", ENCODER_ENCODINGS)
def test_every_parameter_is_used_so_that_several_gpus_take_the_default_back_end(encoding):
    model, tokens = tiny(encoding).train(), texts(2, 9)
    asked = torch.zeros_like(tokens, dtype=torch.bool)
    asked[0, 3] = True
    model(tokens, masked_tokens=asked)[0].sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


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
    model, tokens = tiny("t5", "--causal"), texts(1)
    assert_causal(lambda tokens: model(tokens)[0], tokens, torch.full_like(tokens, 7), [5])


def test_untied_cls_is_refused_where_the_input_has_none():
    with pytest.raises(UsageError, match="--untie-cls: without --init-token 0"):
        tiny("tupe", "--untie-cls", _name="sentence_prediction", init_token=None)


def test_a_sequence_longer_than_the_table_names_both_lengths():
    for encoding in ("tupe", "learned", "bert_ad"):
        with pytest.raises(UsageError, match="sequence of 65 tokens .* table of 64 positions"):
            tiny(encoding)(texts(1, 65))
    for encoding in ("rotary", "t5", "alibi", "none", "sinusoidal"):
        tiny(encoding)(texts(1, 65))


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
