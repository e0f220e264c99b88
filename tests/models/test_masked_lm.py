"""The masked-LM family: sizes, [CLS], padding, segments and heads."""

import pytest
import torch
import torch.nn.functional as F
from support.helpers import ENCODER_ENCODINGS, PAD
from support.masked_language_models import count, texts, tiny

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import parse_encodings
from fairseq_posenc.layers.heads import mean_of

pytestmark = pytest.mark.formulas


def test_sizes_of_the_presets_differ_by_their_positions_only():
    """BERT-base has 110 M parameters; TUPE (section 3.3) adds about 1.18 M, 2 x 768 x 768."""
    bert, projections = count("bert_a_masked_lm_base"), 2 * 768 * 768 + 2 * 768
    assert bert == pytest.approx(110e6, rel=0.01)
    for arch, added in (
        ("roformer", -514 * 768),  # no table
        ("bert_r", 32 * 12),
        ("bert_ad", projections),
        ("tupe_a_tie_cls", projections),
        # adds a norm and p_θ1; lacks two rows of fairseq's table
        ("tupe_a", projections + 2 * 768 + 768 - 2 * 768),
        ("tupe_r", projections + 2 * 768 + 768 - 2 * 768 + 32 * 12),
    ):
        assert count(f"{arch}_masked_lm_base") - bert == added, arch
    # Warner et al. 2024, section 2.1; our norms have biases, 46 vectors of 768 channels
    assert count("modernbert_masked_lm_base", 50368) == pytest.approx(149e6, rel=0.01)


def test_every_parameter_is_used_so_that_several_gpus_take_the_default_back_end():
    model, tokens = tiny("tupe+t5", "--untie-cls").train(), texts(2, 9)
    asked = torch.zeros_like(tokens, dtype=torch.bool)
    asked[0, 3] = True
    model(tokens, masked_tokens=asked)[0].sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


#: encodings whose [CLS] can be untied
SHARED = [name for name in ENCODER_ENCODINGS if parse_encodings(name)[0].shared]


@pytest.mark.parametrize("encoding", SHARED)
@pytest.mark.parametrize("flags", [[], ["--untie-cls"]])
def test_padding_changes_nothing_with_cls_untied_or_not(encoding, flags):
    model, short, padding = tiny(encoding, *flags), texts(1, 6), torch.full((1, 3), PAD)
    want, _ = model(short)
    right, _ = model(torch.cat((short, padding), 1))
    left, _ = model(torch.cat((padding, short), 1))
    torch.testing.assert_close(right[:, :6], want, atol=2e-5, rtol=0)
    torch.testing.assert_close(left[:, 3:], want, atol=2e-5, rtol=0)


def test_causal_models_see_no_later_token():
    model, tokens = tiny("t5", "--causal"), texts(1)
    before = model(tokens)[0]
    tokens[:, 5:] = 7
    after = model(tokens)[0]
    assert torch.equal(before[:, :5], after[:, :5]) and not torch.equal(before[:, 5], after[:, 5])


def test_untied_cls_is_refused_where_the_input_has_none():
    with pytest.raises(UsageError, match="--untie-cls: without --init-token 0"):
        tiny("tupe", "--untie-cls", _name="sentence_prediction", init_token=None)


def test_a_sequence_longer_than_the_table_names_both_lengths():
    for encoding in ("tupe", "learned", "bert_ad"):
        with pytest.raises(UsageError, match="sequence of 65 tokens .* table of 64 positions"):
            tiny(encoding)(texts(1, 65))
    for encoding in ("rotary", "t5", "alibi", "none", "sinusoidal"):
        tiny(encoding)(texts(1, 65))


def test_epsilon_reaches_every_norm():
    model = tiny("tupe", "--layer-norm-eps", "1e-12")
    norms = {n: m.eps for n, m in model.named_modules() if hasattr(m, "normalized_shape")}
    assert len(norms) == 1 + 1 + 2 * 2 + 1 and set(norms.values()) == {1e-12}


def test_masked_tokens_alone_are_projected():
    model = tiny("t5", "--untie-weights-roberta")
    tokens = texts()
    masked = torch.rand(tokens.shape) < 0.3
    torch.testing.assert_close(model(tokens, masked_tokens=masked)[0], model(tokens)[0][masked])


# --- heads


PRE = ("--encoder-normalize-before",)


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
