"""Models with local attention: their checkpoints and their settings."""

import pytest
import torch
from support.helpers import PAD, TINY, build, sentences, tiny
from support.masked_language_models import CLS, Vocabulary
from support.masked_language_models import tiny as masked_lm
from support.sparse_layers import KERNELS, LOCAL

pytestmark = pytest.mark.properties

EOS = Vocabulary.eos()


def test_a_stock_model_continues_with_longer_texts(caplog):
    """The learned positions are repeated, and the global projections start as copies."""
    lengths = ["--max-source-positions", "10", "--max-target-positions", "12"]
    learned = ["--encoder-learned-pos", "--decoder-learned-pos"]
    torch.manual_seed(1)
    stock = build("transformer", *TINY, *learned, *lengths).eval()
    longer = ["--max-source-positions", "35", "--max-target-positions", "12"]
    model = tiny("learned", *KERNELS["global"], *longer)
    with caplog.at_level("WARNING", logger="fairseq_posenc"):
        model.load_state_dict({k: v.clone() for k, v in stock.state_dict().items()}, strict=True)
    messages = [record.getMessage() for record in caplog.records]
    assert any("10 positions in the checkpoint, repeated to fill 35" in m for m in messages)
    assert any("layers.0.self_attn.global_" in m for m in messages)
    table = stock.encoder.embed_positions.weight[PAD + 1 :]
    want = torch.cat((table, table, table, table[:5]))
    assert torch.equal(model.encoder.embed_positions.weight[PAD + 1 :], want)
    assert torch.equal(model.decoder.embed_positions.weight, stock.decoder.embed_positions.weight)
    attention = model.encoder.layers[1].self_attn
    for name in ("q_proj", "k_proj", "v_proj"):
        for one in ("weight", "bias"):
            own, other = (getattr(attention, prefix + name) for prefix in ("", "global_"))
            assert torch.equal(getattr(own, one), getattr(other, one))
    source, target = sentences(2, 9), sentences(2, 7, seed=1)  # all tokens are in the window
    got, want = (each(source, None, target)[0] for each in (model, stock))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("encoding", ["rotary", "t5", "tupe", "learned"])
@torch.no_grad()
def test_the_tokens_of_the_first_text_are_global(encoding):
    """Each row gives the same output as alone; the first text is shorter or longer than 9."""
    flags = [*LOCAL, "6", "--local-global-tokens", "4", "--local-global-first-text", "9"]
    model = masked_lm(encoding, *flags).double().eval()
    for name, parameter in model.named_parameters():
        if "global" in name or "position" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    encoder = model.encoder.sentence_encoder
    # padding on the left, the first text's length (None: no second text), end of the row
    rows = [(5, 4, 40), (0, 6, 33), (0, 14, 40), (1, None, 20), (3, 3, 40)]
    tokens = torch.full((len(rows), 40), PAD)
    for row, (start, first, end) in enumerate(rows):
        tokens[row, start:end] = sentences(1, end - start, seed=row).clamp(min=EOS + 1)
        tokens[row, start], tokens[row, end - 1] = CLS, EOS
        if first is not None:
            tokens[row, start + first - 1] = EOS
    tokens[1, 4] = EOS  # two separators, as RoBERTa has them
    got = model(tokens, features_only=True)[0]
    encoder.global_first_text = False
    for row, (_, first, _) in enumerate(rows):
        real = tokens[row].ne(PAD)
        for layer in encoder.layers:
            layer.self_attn.global_tokens = max(4, min(first or 9, 9))
        want = model(tokens[row, real].unsqueeze(0), features_only=True)[0][0]
        torch.testing.assert_close(got[row, real], want, atol=1e-5, rtol=0)


def test_layers_have_windows_and_dilations_of_their_own():
    flags = [*LOCAL, "4,8,16", "--local-dilation", "1,2", "--encoder-layers", "5"]
    model = tiny("rotary", *flags)
    got = [layer.self_attn.kind[0][1:] for layer in model.encoder.layers]
    assert got == [(4, 1), (8, 2), (16, 1), (4, 2), (8, 1)]
    kept = tiny("rotary", *flags, "--encoder-layers-to-keep", "1,3")
    assert [layer.self_attn.kind[0][1:] for layer in kept.encoder.layers] == [(8, 2), (4, 2)]
