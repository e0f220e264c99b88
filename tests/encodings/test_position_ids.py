"""--position-ids: the positions that rules assign, and encodings at arbitrary positions.

tests/test_properties.py tests decoding, padding and training of models with such rules.
"""

from argparse import Namespace
from dataclasses import replace

import pytest
import torch
from support.helpers import PAD, sentences, tiny
from support.parts import encoding_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.position_ids import POSITION_RULES, Ruled, Tokens, class_of_rule

pytestmark = pytest.mark.formulas
SYMBOLS = {symbol: number for number, symbol in enumerate("<s> <pad> </s> . a b + = 0 1 2".split())}


def read(rule, text, causal=True, padding=(0, 0), **flags):
    """Positions that a rule gives to the embedding table and to the layers, for a text."""
    side = "decoder" if causal else "encoder"
    stack = replace(encoding_of("learned", causal=causal).stack, side=side)
    indices = torch.tensor([[SYMBOLS[symbol] for symbol in text.split()]])
    before, behind = (torch.full((1, n), PAD) for n in padding)
    indices = torch.cat((before, indices, behind), dim=1)
    made = class_of_rule(rule)(Namespace(position_ids=rule, **flags), stack, SYMBOLS)
    places = made.places(Tokens(indices, indices.ne(PAD)))
    end = indices.size(1) - padding[1]
    return [None if each is None else each[0, padding[0] : end].tolist() for each in places]


#: rule, causal, text, positions for the embedding table, positions for the layers
ROWS = [
    # a decoder's input begins with the separator before a document
    ("documents", True, "</s> a b </s> </s> a", [0, 1, 2, 0, 0, 1], "same"),
    ("documents", False, "<s> a b </s> a b a </s>", [0, 1, 2, 3, 0, 1, 2, 3], "same"),
    ("segments", True, "</s> a . a b . . a", [0, 1, 2, 0, 1, 2, 0, 0], [0, 0, 0, 1, 1, 1, 2, 3]),
    ("segments", False, "a b . b", [0, 1, 2, 0], [0, 0, 0, 1]),
    ("digits", True, "</s> 1 2 + 0 = 2 1 0 a", [0, 1, 2, 0, 1, 0, 1, 2, 3, 0], None),
    ("digits", False, "1 2 2", [1, 2, 3], None),
    # numbers are reversed; the text has two sums
    (
        "coupling",
        True,
        "</s> 1 2 + 2 0 = 2 2 0 </s> 1 + 1 = 2 </s>",
        [0, 2, 3, 4, 2, 3, 4, 3, 2, 1, 0, 2, 3, 2, 3, 2, 0],
        "same",
    ),
    ("coupling", True, "1 2 + 0 1 = 2", [2, 3, 4, 2, 3, 4, 3], "same"),
    ("coupling", True, "1 2 + = 2 1 0", [2, 3, 4, 4, 3, 2, 1], "same"),
]


@pytest.mark.parametrize("padding", [(0, 0), (3, 0), (0, 2)])
@pytest.mark.parametrize(
    "rule, causal, text, table, layers",
    [row for row in ROWS if row[0] in POSITION_RULES],  # some are in packs
)
def test_positions_of_rules(rule, causal, text, table, layers, padding):
    flags = {"position_digits": "0 1 2"}
    got = read(rule, text, causal, padding, **flags)
    assert got == [table, table if layers == "same" else layers]


def test_separators_are_symbols_of_choice():
    assert read("documents", "a . b + a", False, position_separators=". +")[0] == [0, 1, 0, 1, 0]
    twice = read("documents", "a . b . . a", False, position_separators="..")[0]
    assert twice == [0, 1, 2, 3, 4, 0]
    with pytest.raises(UsageError, match="--position-separators ';': ';' is not in the dictionary"):
        read("documents", "a", position_separators=";")


@pytest.mark.parametrize("rule", POSITION_RULES)
def test_positions_follow_from_the_tokens_before(rule):
    """If positions depended on later tokens, cached keys would have wrong positions."""
    text = "</s> 1 . 2 + 2 0 = 2 . 0 </s> 1 + 1 = 2"
    whole = read(rule, text, position_digits="0 1 2")
    words = text.split()
    for length in range(1, len(words)):
        part = read(rule, " ".join(words[:length]), position_digits="0 1 2")
        assert part == [each and each[:length] for each in whole]


class Given:
    """A rule that assigns the positions *ids* (B, S), whatever the tokens."""

    zero_is_none = False

    def __init__(self, ids):
        self.ids = ids

    def places(self, tokens):
        return Ruled(self.ids, self.ids)


def encode(model, source, ids):
    """The encoder's output for *source*, with its tokens at the positions *ids*."""
    model.encoder.assigner.rule = Given(ids)
    return model.encoder(source)["encoder_out"][0]


#: encodings that cover every use of positions; test_formulas.py tests the logits of each
ENCODERS = ["learned", "rotary", "bert_ad", "t5", "tupe", "softmax:rotary+deberta"]
ENCODERS += ["shaw_values:rotary+shaw", "favor:rotary"]


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_encodings_go_by_positions_and_not_by_the_order_of_tokens(name):
    model, plain = tiny(name, "--position-ids", "documents"), tiny(name)
    model.load_state_dict(plain.state_dict())
    source = sentences(2, 7)
    source[0, :2] = PAD
    counted = torch.tensor([[0, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6]])
    real, expected = source.t().ne(PAD), plain.encoder(source)["encoder_out"][0]
    got = encode(model, source, counted)
    torch.testing.assert_close(got[real], expected[real], atol=1e-5, rtol=0)
    source, ids = sentences(2, 7), torch.tensor([[3, 0, 1, 9, 4, 2, 12], [0, 1, 2, 0, 1, 2, 3]])
    order = torch.tensor([4, 0, 6, 2, 1, 5, 3])
    before = encode(model, source, ids)
    after = encode(model, source[:, order], ids[:, order])
    torch.testing.assert_close(after, before[order], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "first, message",
    [
        (-1, "a position of the encoder is -1"),
        (1018, "go up to 1024, but the encoder has 1024"),
    ],
)
def test_positions_that_the_model_has_not_are_refused_in_one_line(first, message):
    model, ids = tiny("rotary", "--position-ids", "documents"), torch.arange(first, first + 7)
    with pytest.raises(UsageError, match=message) as error:
        encode(model, sentences(2, 7), ids.expand(2, -1))
    assert "\n" not in str(error.value)
