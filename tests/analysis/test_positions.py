"""Plots of positions: the numbers that they show, and the files that are written."""

import cmath

import pytest
import torch
from support.causal_language_models import SMALL as LM_SMALL
from support.causal_language_models import tiny as language_model
from support.helpers import TINY, model_settings, tiny
from support.masked_language_models import tiny as masked_lm
from support.parts import places_of

from fairseq_posenc.analysis import positions as plotted
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli import main
from fairseq_posenc.encodings.transformer_xl import Sinusoids

pytestmark = pytest.mark.formulas


def save(model, settings, folder):
    """Write a checkpoint with only the entries that the command reads."""
    path = folder / "checkpoint.pt"
    settings = dict(settings) if hasattr(settings, "keys") else vars(settings)
    settings = {k: v for k, v in settings.items() if isinstance(v, (str, int, float))}
    torch.save({"cfg": {"model": settings}, "model": model.state_dict()}, str(path))
    return str(path)


def masked_lm_file(folder, encoding, *flags):
    model = masked_lm(encoding, *flags)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model, save(model, model.args, folder)


def translation_file(folder, encoding, *flags):
    cfg = model_settings("posenc_transformer", "--position-encoding", encoding, *TINY, *flags)
    model = tiny(encoding, *flags)
    return model, save(model, cfg, folder)


def test_maps_are_the_logits_that_the_model_adds(tmp_path):
    model, path = masked_lm_file(tmp_path, "tupe+t5", "--untie-cls")
    (side,) = plotted.read_sides(path)
    rows = plotted.heat_maps(side, 12)
    assert [row.title for row in rows] == [
        "encoder: tupe", "encoder: t5", "encoder: tupe + t5, [CLS] untied"
    ]  # fmt: skip
    positions = torch.arange(12)[None]
    terms = model.encoder.sentence_encoder.position_bias
    for row, term in zip(rows, (terms["tupe"], terms["t5"], terms)):
        torch.testing.assert_close(row.maps, term(places_of(positions.size(1)))[0].detach())


def test_the_positional_part_of_bert_ad(tmp_path):
    model, path = masked_lm_file(tmp_path, "bert_ad")
    (side,) = plotted.read_sides(path)
    (row,) = plotted.heat_maps(side, 5)
    module = model.encoder.sentence_encoder.position_map
    p = module.norm(module.positions.weight[:5])
    q, k = (f(p).view(5, 4, 8) for f in (module.q_proj, module.k_proj))
    want = torch.einsum("thd,shd->hts", q, k) / (4 * 8) ** 0.5
    torch.testing.assert_close(row.maps, want.detach())


def test_a_decoder_shows_no_later_key(tmp_path):
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    sides = plotted.read_sides(translation_file(tmp_path, "alibi")[1])
    encoder, decoder = (plotted.heat_maps(side, 6)[0].maps for side in sides)
    assert torch.isfinite(encoder).all()
    assert decoder.isnan().equal(later.expand_as(decoder))
    model = language_model("t5+rotary")
    flags = ["--position-encoding", "t5+rotary", *LM_SMALL, "--tokens-per-sample", "64"]
    cfg = model_settings("posenc_lm", *flags, task="language_modeling")
    torch.nn.init.normal_(model.decoder.position_bias["t5"].table.weight)
    (side,) = plotted.read_sides(save(model, cfg, tmp_path))
    (row,) = plotted.heat_maps(side, 6)
    want = model.decoder.position_bias["t5"](places_of(6))[0].detach()
    torch.testing.assert_close(row.maps.tril(), want.tril())
    assert plotted.decay(side, 6).trained.shape == (2, 6)


@pytest.mark.parametrize(
    "pairing, groups, more", [("interleaved", 4, ()), ("half", 2, ()), ("half", 4, ("--no-bias",))]
)
def test_decay_is_the_bound_of_equation_29(pairing, groups, more, tmp_path):
    flags = ("--rotary-pairing", pairing, "--kv-heads", str(groups), *more)
    model, path = masked_lm_file(tmp_path, "rotary", *flags)
    (side,) = plotted.read_sides(path)
    curves = plotted.decay(side, 9)
    theta = [10000 ** (-2 * i / 8) for i in range(4)]

    def partial(distance, count):
        return abs(sum(cmath.exp(1j * distance * t) for t in theta[:count]))

    def bound(h, distance):
        h = [*h, 0]
        return sum(partial(distance, i + 1) * abs(h[i + 1] - h[i]) for i in range(4))

    for distance in range(9):
        want = sum(partial(distance, i + 1) for i in range(4)) / 4
        assert curves.formula[distance].item() == pytest.approx(want)
    attention, zeros = model.encoder.sentence_encoder.layers[1].self_attn, torch.zeros(32, 1)
    shares = []
    for head in range(4):
        channels = [
            (2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + 4) for i in range(4)
        ]
        h = []
        for pair in channels:
            q, k = (
                torch.cat((f.weight, zeros if f.bias is None else f.bias[:, None]), 1).double()[
                    [of * 8 + c for c in pair]
                ]
                for f, of in ((attention.q_proj, head), (attention.k_proj, head * groups // 4))
            )
            h.append(sum(complex(*q[:, c]) * complex(*k[:, c]).conjugate() for c in range(33)))
        shares.append([bound(h, d) / bound(h, 0) for d in range(9)])
    want = torch.tensor(shares, dtype=torch.double).mean(0)
    torch.testing.assert_close(curves.trained[1], want, atol=1e-5, rtol=1e-5)


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    _, path = masked_lm_file(tmp_path, "t5+rotary")
    main(["plot", "positions", path, str(tmp_path / "out.png"), "--length", "10"])
    image = (tmp_path / "out.png").read_bytes()
    assert image.startswith(b"\x89PNG") and len(image) > 5000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint.pt", "out.png"]


@pytest.mark.parametrize(
    "encoding, model, flags, words",
    [
        ("shaw", [], [], "shaw has nothing to plot: no table, no content-free logits, and no"),
        ("rotary", ["--attention", "favor"], [], "rotary has .*no rotation in layers with softmax"),
        ("rotary", ["--layer", "gated"], [], "rotary has .* no rotation in layers with softmax"),
        ("tupe", [], ["--length", "65"], "--length 65: the table has 64 positions"),
        ("t5", [], ["--length", "1"], "--length 1"),
    ],
)
def test_what_cannot_be_drawn_is_named(encoding, model, flags, words, tmp_path):
    _, path = masked_lm_file(tmp_path, encoding, *model)
    with pytest.raises(UsageError, match=words):
        main(["plot", "positions", path, str(tmp_path / "out.png"), *flags])


# --- learned tables, terms inside of layers, and encodings that differ from layer to layer


def test_the_term_of_transformer_xl_that_depends_on_positions_alone(tmp_path):
    """v·(r_{i-j} W_kR) / √D of the last layer, at every distance."""
    model, path = masked_lm_file(tmp_path, "transformer_xl")
    (side,) = plotted.read_sides(path)
    row = plotted.layer_terms(side, 6)[-1]
    assert row.title == "encoder, layer 2: transformer_xl without content"
    term = model.encoder.sentence_encoder.layers[-1].self_attn.position_terms["transformer_xl"]
    r = Sinusoids(model.args, side.stack)(torch.arange(-5, 6))
    keys = term.proj(r).view(11, 4, 8)
    want = torch.einsum("hd,nhd->hn", term.v[:, 0], keys) / 8**0.5
    for query in range(6):
        for key in range(6):
            torch.testing.assert_close(row.maps[:, query, key], want[:, key - query + 5])


@pytest.mark.parametrize("encoding", ["learned+rotary", "transformer_xl", "dape", "shaw", "tupe"])
def test_what_has_such_a_term_or_a_table(encoding, tmp_path):
    """A term is plotted only if it is not zero when all queries and keys are zero."""
    (side,) = plotted.read_sides(masked_lm_file(tmp_path, encoding)[1])
    assert bool(plotted.layer_terms(side, 5)) == (encoding in ("transformer_xl", "dape"))
    assert bool(plotted.learned_table(side, 5)) == (encoding == "learned+rotary")


def test_encodings_that_differ_by_layer(tmp_path):
    model, path = masked_lm_file(tmp_path, "none,transformer_xl")
    none, last = plotted.read_sides(path)
    assert (none.layers, last.layers) == ([0], [1])
    assert plotted.layer_terms(none, 5) == []
    (row,) = plotted.layer_terms(last, 5)
    assert row.title == "encoder, layer 2: transformer_xl without content"
    bases = ("--rotary-base", "500,10000")
    t5, rotary = plotted.read_sides(masked_lm_file(tmp_path, "t5,rotary", *bases)[1])
    decay = plotted.decay(rotary, 5)  # the first layer, whose base is 500, does not rotate
    assert decay.layers == [1] and decay.title.endswith("base 10000")
    assert plotted.decay(t5, 5) is None
    (only,) = plotted.read_sides(masked_lm_file(tmp_path, "rotary*2,t5")[1])
    assert only.encoding.name == "rotary" and plotted.decay(only, 5).layers == [0, 1]
    assert plotted.heat_maps(rotary, 5) == [] and len(plotted.heat_maps(t5, 5)) == 1
    model, path = masked_lm_file(tmp_path, "alibi,t5")
    terms = model.encoder.sentence_encoder.position_bias_1["t5"]
    (row,) = plotted.heat_maps(plotted.read_sides(path)[1], 5)
    torch.testing.assert_close(row.maps, terms(places_of(5))[0].detach())


def test_the_table_of_learned_positions(tmp_path):
    model, path = masked_lm_file(tmp_path, "learned")
    (side,) = plotted.read_sides(path)
    table = model.encoder.sentence_encoder.embed_positions
    vectors = table.weight[table.padding_idx + 1 :][:7].detach()
    vectors = vectors - vectors.mean(0)
    want = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
    (drawn,) = plotted.learned_table(side, 7)
    torch.testing.assert_close(drawn.maps[0], want)
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    plotted.plot(path, tmp_path / "out.svg", None, 7)
    assert "cosine similarity" in (tmp_path / "out.svg").read_text(encoding="utf-8")
