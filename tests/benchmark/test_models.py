"""fairseq-posenc benchmark: the models and batches that it builds, and their arithmetic."""

import pytest
import torch
from support.benchmark_runs import subject

from fairseq_posenc.benchmark import measure
from fairseq_posenc.benchmark.models import MaskedLMSubject


def test_flags_of_an_entry_go_before_the_common_ones():
    one, two = subject("transformer"), subject("transformer --encoder-layers 2")
    assert (len(one.model.encoder.layers), len(two.model.encoder.layers)) == (1, 2)
    assert len(one.model.decoder.layers) == len(two.model.decoder.layers) == 1


def test_both_sides_have_the_size_asked_for():
    model = subject("roformer_base", "--size", "base", "--layers", "2").model
    for side in (model.encoder, model.decoder):
        assert len(side.layers) == 2
        assert side.layers[0].fc1.weight.shape == (2048, 512)
        assert side.layers[0].self_attn.num_heads == 8
    assert model.encoder.embed_tokens is model.decoder.embed_tokens
    assert model.decoder.output_projection.weight is model.decoder.embed_tokens.weight


def test_the_batch_is_padded_as_fairseq_pads():
    flags = ("--batch", "4", "--length", "16", "8", "--seed", "3")
    first, second = (subject(arch, *flags).sample for arch in ("transformer", "roformer_base"))
    source, target = first["net_input"]["src_tokens"], first["target"]
    assert torch.equal(source, second["net_input"]["src_tokens"])
    assert torch.equal(target, second["target"])
    assert source.shape == (4, 16) and target.shape == (4, 8)
    lengths = source.ne(1).sum(1)
    assert lengths.max() == 16 and lengths.min() < 16 and lengths.min() >= 12
    assert source[:, -1].eq(2).all() and source[:, 0].eq(1).any()  # padding left of the source
    assert target[:, 0].ne(1).all() and target[:, -1].eq(1).any()  # and right of the target


def test_the_baseline_is_stock():
    assert type(subject("transformer").model).__module__.startswith("fairseq.")


def masked_lm(entry, *flags):
    return subject(entry, "--length", "9", *flags, kind=MaskedLMSubject)


def test_documents_have_the_length_asked_for_on_average():
    whole = masked_lm("roformer_masked_lm_tiny", "--length", "400").sample
    packed = masked_lm("roformer_masked_lm_tiny", "--length", "400", "--documents", "20").sample
    ends = packed["net_input"]["src_tokens"].eq(2)
    assert ends.sum().item() == pytest.approx(3 * 400 / 20, rel=0.3)
    source = whole["net_input"]["src_tokens"]
    assert torch.equal(source.masked_fill(ends, 2), packed["net_input"]["src_tokens"])


def test_arithmetic_is_that_of_the_matrix_products():
    """Two operations a product, and twice the forward's in the backward."""
    c, ffn, tokens, heads = 128, 512, 3 * 9, 1
    made = masked_lm("roformer_masked_lm_tiny")
    predicted = made.sample["target"].ne(made.task.source_dictionary.pad()).sum().item()
    layer = tokens * (4 * c * c + 2 * c * ffn + 2 * 9 * c * heads)
    head = predicted * (c * c + c * len(made.task.source_dictionary))
    count = measure.arithmetic(made.training())
    assert count == pytest.approx(3 * 2 * (layer + head) / 1e9, rel=1e-9)

    # GAU: e = 2c and s = 32; keys of one head, and values as wide as the gates
    made = masked_lm("gau_masked_lm_tiny --encoder-layers 1")
    unit = tokens * (c * (2 * 2 * c + 32) + 2 * c * c + 9 * (32 + 2 * c))
    count = measure.arithmetic(made.training())
    assert count == pytest.approx(
        3 * 2 * (unit + predicted * c * len(made.task.source_dictionary)) / 1e9
    )


def test_an_entry_may_have_a_vocabulary_of_its_own():
    for entry, size in (
        ("roformer_masked_lm_tiny --vocabulary 70", 70),
        ("explicit roberta_base", 50),
    ):
        assert masked_lm(entry).model.encoder.sentence_encoder.embed_tokens.num_embeddings == size
