"""Heads of masked language models, and what ModernBERT adds: norms in them, means of tokens."""

import pytest
import torch
import torch.nn.functional as F
from support.helpers import PAD
from support.masked_language_models import count, texts, tiny

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.layers.heads import mean_of

pytestmark = pytest.mark.formulas

PRE = ("--encoder-normalize-before",)


def test_base_has_149_million_parameters():
    """The paper's section 2.1; here norms have biases, 46 of 768 channels."""
    assert count("modernbert_masked_lm_base", 50368) == pytest.approx(149e6, rel=0.01)


@pytest.mark.parametrize("skipped", [False, True])
@torch.no_grad()
def test_the_first_attention_reads_the_normalised_embeddings(skipped):
    model = tiny("rotary", *PRE, *(["--skip-first-norm"] if skipped else []))
    encoder, seen = model.encoder.sentence_encoder, []
    encoder.layernorm_embedding.register_forward_hook(lambda _, x, out: seen.append(out))
    for layer in encoder.layers:
        layer.self_attn.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    encoder.layernorm_embedding.weight.uniform_(0.5, 2.0)
    model(texts())
    embedded, first, second = seen
    normed = F.layer_norm(embedded, embedded.shape[-1:])
    torch.testing.assert_close(first, embedded if skipped else normed)
    assert not torch.allclose(embedded, normed)
    torch.testing.assert_close(second, F.layer_norm(second, second.shape[-1:]), atol=1e-3, rtol=0)
    names = [name for name in model.state_dict() if "0.self_attn_layer_norm" in name]
    assert len(names) == (0 if skipped else 2)


def headed(*flags):
    model = tiny("rotary", *flags)
    model.register_classification_head("topic", num_classes=3)
    model.register_token_head("tag", 5)
    return model


@torch.no_grad()
def test_heads_with_norms_are_their_formula():
    model, tokens = headed("--pooler-norm", "--pooler-activation-fn", "gelu"), texts()
    features, _ = model(tokens, features_only=True)
    for name, x in (("topic", features[:, 0]), ("tag", features)):
        head = model.head(name)
        head.norm.weight.uniform_(0.5, 2.0)
        hidden = F.gelu(x.double() @ head.dense.weight.double().t() + head.dense.bias)
        normed = F.layer_norm(hidden, hidden.shape[-1:], None, None, 1e-5) * head.norm.weight
        want = (normed + head.norm.bias) @ head.out_proj.weight.double().t() + head.out_proj.bias
        got, _ = model(tokens, classification_head_name=name)
        torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("flags", [(), ("--pooler-norm", "--pooler-activation-fn", "gelu")])
@torch.no_grad()
def test_heads_are_loaded_where_that_is_asked_for(flags):
    model, tokens = headed(*flags), texts()
    other, without = tiny("rotary", *flags, "--load-checkpoint-heads"), tiny("rotary", *flags)
    for each in (other, without):
        each.load_state_dict(model.state_dict(), strict=True)
    for name, shape in (("topic", (2, 3)), ("tag", (2, 9, 5))):
        one, again = (m(tokens, classification_head_name=name)[0] for m in (model, other))
        assert torch.equal(one, again) and one.shape == shape
    assert not without.token_heads and not without.classification_heads


def test_the_mean_of_many_tokens_stays_in_the_range_of_float16():
    features = torch.full((1, 4096, 2), 20.0, dtype=torch.float16)
    assert mean_of(features, torch.ones(1, 4096, dtype=torch.bool)).tolist() == [[[20.0, 20.0]]]


@torch.no_grad()
def test_the_mean_of_tokens_leaves_out_padding():
    model = tiny("rotary", "--pooler", "mean")
    model.register_classification_head("topic", num_classes=3)
    text = texts(1, 6)
    want, _ = model(text, classification_head_name="topic")
    features, _ = model(text, features_only=True)
    mean = features.mean(1, keepdim=True)
    torch.testing.assert_close(model.head("topic")(mean), want, atol=1e-6, rtol=1e-5)
    with pytest.raises(UsageError, match="--pooler mean: this head reads the mean"):
        model.head("topic")(features)  # as fairseq's hub interface does
    gap = torch.full((1, 3), PAD)
    for padded in (torch.cat((text, gap), 1), torch.cat((gap, text), 1)):
        got, _ = model(padded, classification_head_name="topic")
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
