"""Learned tables, terms inside of the layers, and encodings that differ by layer, drawn."""

import pytest
import torch
from support.helpers import ENCODER_ENCODINGS

from fairseq_posenc.analysis import learned_positions, positions_figure
from fairseq_posenc.analysis.positions import decay, heat_maps, read_sides
from fairseq_posenc.encodings.transformer_xl import Sinusoids
from tests.analysis.test_positions import masked_lm_file, translation_file


def test_the_term_of_transformer_xl_that_depends_on_positions_alone(tmp_path):
    """v·(r_{i-j} W_kR) / √D, at every distance, of the last layer."""
    model, path = masked_lm_file(tmp_path, "transformer_xl")
    (side,) = read_sides(path)
    row = learned_positions.layer_terms(side, 6)[-1]
    assert row.title == "encoder, layer 2: transformer_xl without content"
    term = model.encoder.sentence_encoder.layers[-1].self_attn.position_terms["transformer_xl"]
    r = Sinusoids(model.args, side.stack)(torch.arange(-5, 6))
    keys = term.proj(r).view(11, 4, 8)
    want = torch.einsum("hd,nhd->hn", term.v[:, 0], keys) / 8**0.5
    for query in range(6):
        for key in range(6):
            torch.testing.assert_close(row.maps[:, query, key], want[:, key - query + 5])


def test_a_decoder_shows_no_later_key(tmp_path):
    _, decoder = read_sides(translation_file(tmp_path, "transformer_xl"))
    (first, _) = (row.maps for row in learned_positions.layer_terms(decoder, 5))
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    assert first.isnan().equal(later.expand_as(first))


@pytest.mark.parametrize("encoding", ENCODER_ENCODINGS)
def test_what_has_such_a_term_or_a_table(encoding, tmp_path):
    (side,) = read_sides(masked_lm_file(tmp_path, encoding)[1])
    has_term = encoding == "transformer_xl"
    assert bool(learned_positions.layer_terms(side, 5)) == has_term
    has_table = "learned" in encoding.split("+")
    assert (learned_positions.learned_table(side, 5) is not None) == has_table


def test_encodings_that_differ_by_layer(tmp_path):
    """Each has its own layers and parameters."""
    model, path = masked_lm_file(tmp_path, "none,transformer_xl")
    none, last = read_sides(path)
    assert (none.layers, last.layers) == ([0], [1])
    assert learned_positions.layer_terms(none, 5) == []
    (row,) = learned_positions.layer_terms(last, 5)
    assert row.title == "encoder, layer 2: transformer_xl without content"
    t5, rotary = read_sides(masked_lm_file(tmp_path, "t5,rotary")[1])
    assert decay(rotary, 5).layers == [1] and decay(t5, 5) is None
    (only,) = read_sides(masked_lm_file(tmp_path, "rotary*2,t5")[1])
    assert only.encoding.name == "rotary" and decay(only, 5).layers == [0, 1]
    assert heat_maps(rotary, 5) == [] and len(heat_maps(t5, 5)) == 1
    model, path = masked_lm_file(tmp_path, "alibi,t5")
    terms = model.encoder.sentence_encoder.position_bias_1["t5"]
    positions = torch.arange(5)[None]
    (row,) = heat_maps(read_sides(path)[1], 5)
    torch.testing.assert_close(row.maps, terms(positions, positions)[0].detach())


def test_the_table_of_learned_positions(tmp_path):
    model, path = masked_lm_file(tmp_path, "learned")
    (side,) = read_sides(path)
    table = model.encoder.sentence_encoder.embed_positions
    vectors = table.weight[table.padding_idx + 1 :][:7].detach()
    vectors = vectors - vectors.mean(0)
    want = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
    torch.testing.assert_close(learned_positions.learned_table(side, 7).similarities, want)
    pytest.importorskip("matplotlib", reason="an extra: plots")
    positions_figure.plot(path, tmp_path / "out.svg", None, 7)
    assert "cosine similarity" in (tmp_path / "out.svg").read_text(encoding="utf-8")
