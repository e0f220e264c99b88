"""DeBERTa's enhanced mask decoder: its formulas, which outputs use it, and refusals.

He, Liu, Gao, Chen, arXiv 2006.03654, section 3.2.
"""

import functools

import pytest
import torch
import torch.nn.functional as F
from support.dense_attention import attended
from support.helpers import ENCODER_ENCODINGS, PAD
from support.masked_language_models import SMALL, build, padded_texts

from fairseq_posenc.basics.errors import UsageError

pytestmark = pytest.mark.formulas
padded = functools.partial(padded_texts, 9, 6, 2)


def tiny(encoding, *flags, layers=2, **settings):
    torch.manual_seed(0)
    flags = ["--position-encoding", encoding, *SMALL, *flags]
    flags += ["--mask-decoder-layers", str(layers)]
    return build("posenc_masked_lm", *flags, **settings).double()


def applied(layer, x, keys, hidden):
    """A post-norm layer: softmax attention without positions, and the feed-forward network."""
    places = torch.arange(x.size(1))
    x = layer.self_attn_layer_norm(x + attended(None, layer, x, keys, places, places, hidden))
    return layer.final_layer_norm(x + layer.fc2(F.relu(layer.fc1(x))))


@pytest.mark.parametrize("times", [1, 2, 3])
@torch.no_grad()
def test_the_decoder_is_what_the_formula_says(times):
    model, tokens = tiny("none", "--activation-fn", "relu", layers=times), padded()
    encoder, hidden = model.encoder.sentence_encoder, tokens.eq(PAD)
    x = encoder.begin(tokens)[0].like
    below = applied(encoder.layers[0], x, x, hidden)
    x = below + encoder.embed_mask_positions.weight[: tokens.size(1)]
    for _ in range(times):
        x = applied(encoder.layers[1], x, below, hidden)
    expected = model.encoder.lm_head(x)
    got, extra = model(tokens, return_all_hiddens=True)
    torch.testing.assert_close(got[~hidden], expected[~hidden], atol=1e-9, rtol=0)
    assert len(extra["inner_states"]) == 2 + times


PRE = "--encoder-normalize-before"


@pytest.mark.parametrize("flags", [*((name,) for name in ENCODER_ENCODINGS), ("tupe+t5", PRE)])
@torch.no_grad()
def test_without_positions_and_once_it_is_bert(flags):
    """With P = 0 and n = 1, the decoder computes the same as the last layer."""
    model, tokens = tiny(*flags, layers=1), padded()
    model.encoder.sentence_encoder.embed_mask_positions.weight.zero_()
    real = tokens.ne(PAD)
    features = model(tokens, features_only=True)[0]
    expected = model.encoder.output_layer(features)[real]
    torch.testing.assert_close(model(tokens)[0][real], expected, atol=1e-9, rtol=0)


@torch.no_grad()
def test_heads_of_pre_training_read_the_decoder_and_those_of_fine_tuning_the_layers_alone():
    model, tokens = tiny("rotary"), padded()
    model.register_classification_head("sentence", num_classes=2)
    model.add_head("nsp")
    model.double()

    def outputs():
        features = model(tokens, features_only=True)[0]
        head = {"features_only": True, "classification_head_name": "sentence"}
        logits, extra = model(tokens, heads={"nsp": {}})
        return features, model(tokens, **head)[0], logits, extra["nsp"]

    before, real = outputs(), tokens.ne(PAD)
    torch.testing.assert_close(before[2][real], model(tokens)[0][real])
    table = model.encoder.sentence_encoder.embed_mask_positions.weight
    table.add_(torch.randn_like(table))
    same = [torch.equal(one, other) for one, other in zip(before, outputs())]
    assert same == [True, True, False, False]


@torch.no_grad()
def test_positions_are_absolute_and_padding_changes_nothing():
    model, tokens = tiny("t5"), padded()
    logits = model(tokens)[0]
    for row, length in enumerate((9, 6, 2)):
        alone = model(tokens[row : row + 1, :length])[0]
        torch.testing.assert_close(logits[row : row + 1, :length], alone, atol=1e-9, rtol=0)
    left = torch.cat((torch.full((1, 3), PAD), tokens[:1]), dim=1)
    torch.testing.assert_close(model(left)[0][:, 3:], logits[:1], atol=1e-9, rtol=0)
    unordered = tiny("none")
    reversed_tokens = tokens[:1].flip(1)
    there = unordered(tokens[:1])[0].flip(1)
    assert not torch.allclose(unordered(reversed_tokens)[0], there)
    features = unordered(tokens[:1], features_only=True)[0].flip(1)
    torch.testing.assert_close(unordered(reversed_tokens, features_only=True)[0], features)


def test_texts_beyond_the_table_are_refused():
    model = tiny("rotary", "--num-positions", "8")
    with pytest.raises(UsageError, match="a text has 9 tokens, .* a table of 8 positions"):
        model(padded())
    model(padded(), features_only=True)
