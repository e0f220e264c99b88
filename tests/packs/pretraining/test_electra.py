"""Replaced-token detection: loss, generator, sampling, and fine-tuning of the discriminator."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.logging import metrics
from support.commands import read, train
from support.helpers import PAD, VOCABULARY, copies
from support.masked_language_models import SMALL, build, masked_batch, texts
from support.masked_language_models import tiny as masked_lm
from support.masked_lm_runs import CLASSIFY, MASKED, SHAPE
from support.warm_starts import FRESH

from fairseq_posenc.packs.pretraining.electra import sample_tokens

pytest_plugins = ["support.toy", "support.masked_lm_runs"]
pytestmark = pytest.mark.formulas


@copies
def tiny(encoding="rotary", *flags):
    flags = ["--position-encoding", encoding, *SMALL, "--generator-size", "0.5", *flags]
    return build("posenc_electra", *flags)


def batch():
    tokens = texts(3, 9)
    tokens[0, -3:] = PAD
    torch.manual_seed(0)
    asked = (torch.rand(tokens.shape) < 0.4) & tokens.ne(PAD)
    return masked_batch(tokens, asked, ntokens=tokens.ne(PAD).sum())


def criterion(weight=50.0):
    task = Namespace(target_dictionary=VOCABULARY)
    name = "replaced_token_detection"
    return CRITERION_REGISTRY[name](Namespace(discriminator_weight=weight), task)


@pytest.mark.parametrize("weight", [0.0, 50.0])
def test_loss_is_that_of_the_paper(weight):
    """The loss of section 2, with a loop over tokens in float64."""
    model, sample = tiny().double(), batch()
    loss, size, log = criterion(weight)(model, sample)
    masked = sample["target"].ne(PAD)
    logits, extra = model(**sample["net_input"], masked_tokens=masked)
    original = torch.where(masked, sample["target"], sample["net_input"]["src_tokens"])
    assert torch.equal(extra["tokens"][~masked], original[~masked])
    generator, found = logits.double().log_softmax(-1), []
    lm = -sum(row[t] for row, t in zip(generator, original[masked]))
    for token, drawn, score in zip(
        original.flatten(), extra["tokens"].flatten(), extra["replaced"].flatten()
    ):
        if token != PAD:
            p = torch.sigmoid(score.double())
            found.append(-torch.log(p if drawn != token else 1 - p))
    expected = lm / size + weight * sum(found) / len(found)
    torch.testing.assert_close((loss / size).double(), expected, atol=1e-5, rtol=1e-5)
    assert len(found) == log["text"] and 0 < log["replaced"] <= masked.sum()
    with metrics.aggregate() as logged:
        criterion().reduce_metrics([log, log])
    drawn, score = extra["tokens"], extra["replaced"]
    right = ((score > 0) == (drawn != original))[original != PAD]
    expected = 100 * right.float().mean().item()
    assert logged.get_smoothed_value("accuracy") == pytest.approx(expected, abs=0.01)


def test_the_discriminator_does_not_teach_the_generator():
    """Sampling has no gradient; only the shared embedding has gradients from both models."""
    model, sample = tiny(), batch()
    (criterion(1.0)(model, sample)[0] - criterion(0.0)(model, sample)[0]).backward()
    shared = model.encoder.sentence_encoder.embed_tokens.weight
    assert model.generator.sentence_encoder.embed_tokens.weight is shared
    for name, parameter in model.generator.named_parameters():
        if parameter is not shared and parameter.grad is not None:
            assert parameter.grad.abs().max() < 1e-7, name
    assert model.replaced_head.out_proj.weight.grad.abs().max() > 0
    criterion()(model, sample)[0].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_tokens_are_drawn_with_the_generators_probabilities():
    logits = torch.tensor([0.5, -1.0, 2.0, 0.0])
    drawn = sample_tokens(logits.expand(20000, -1), repeatable=False)
    shares = torch.bincount(drawn, minlength=4) / 20000
    torch.testing.assert_close(shares, logits.softmax(0), atol=0.015, rtol=0)
    again = [sample_tokens(logits.expand(50, -1), repeatable=True) for _ in range(2)]
    assert torch.equal(*again)
    assert sample_tokens(logits[None][:0], repeatable=False).shape == (0,)


@pytest.mark.parametrize("flags", [(), ("--untie-weights-roberta",)])
def test_a_masked_language_model_takes_the_discriminator(flags):
    electra, plain = tiny("rotary", *flags), masked_lm("rotary", *flags)
    plain.load_state_dict(electra.state_dict())
    tokens = texts()
    features = [model(tokens, features_only=True)[0] for model in (electra, plain)]
    assert torch.equal(*features)


@pytest.mark.parametrize("heads, kv_heads, got", [(8, 4, 2), (6, 2, 1)])
def test_the_generator_shares_keys_as_the_discriminator_or_more(heads, kv_heads, got):
    flags = ["--encoder-embed-dim", "48", "--encoder-attention-heads", str(heads)]
    model = build(
        "posenc_electra", "--position-encoding", "rotary", *flags, "--kv-heads", str(kv_heads),
        "--generator-size", "0.5", "--encoder-layers", "1",
    )  # fmt: skip
    layer = model.generator.sentence_encoder.layers[0].self_attn
    assert (layer.num_heads, layer.kv_heads) == (heads // 2, got)


def test_gated_units_need_no_heads_that_divide_their_channels():
    flags = ["--encoder-embed-dim", "36", "--encoder-attention-heads", "12"]
    gated = ["--layer", "gated", "--gau-key-size", "8", "--generator-size", "0.4"]
    model = build("posenc_electra", "--position-encoding", "rotary", *flags, *gated)
    assert model.generator.args.encoder_embed_dim == 14


def test_electra_pretrains_resumes_and_is_fine_tuned(corpora, tmp_path):
    flags = ["--arch", "roformer_electra_tiny", *SHAPE, "--generator-size", "0.5", *MASKED]
    flags += ["--criterion", "replaced_token_detection"]
    pre, fine = tmp_path / "pre", tmp_path / "fine"
    found = train(corpora.text, pre, *flags)
    logged = found.entries("valid")[0]
    assert 0 < float(logged["valid_generator_loss"]) < 20
    assert 0 <= float(logged["valid_recall"]) <= 100
    assert "update 1" not in train(corpora.text, pre, *flags, "--max-epoch", "2").losses()
    source = ["--restore-file", pre / "checkpoint_last.pt", *FRESH]
    classify = ["--arch", "posenc_masked_lm", *CLASSIFY, "--num-classes", "2"]
    train(corpora.pairs, fine, *classify, "--max-positions", "32", "--max-update", "0", *source)
    (before, _), (after, settings) = (read(f / "checkpoint_last.pt") for f in (pre, fine))
    assert settings["position_encoding"] == "rotary" and "generator_size" not in settings
    assert not any(key.startswith("generator") for key in after)
    assert any(key.startswith("generator") for key in before)
