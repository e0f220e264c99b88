"""--position-ids: the positions that rules give, and what models make of them."""

from argparse import Namespace
from dataclasses import replace

import pytest
import torch
from support.causal_language_models import tiny as language_model
from support.helpers import LINEAR, PAD, VOCABULARY, causal_only, decode_in_steps, sentences, tiny
from support.parts import encoding_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.position_ids import POSITION_RULES, Ruled, Tokens, rule_of
from fairseq_posenc.stacks.positions import StackPositions

SYMBOLS = {symbol: number for number, symbol in enumerate("<s> <pad> </s> . a b + = 0 1 2".split())}
TAKERS = [name for name, entry in ENCODINGS.items() if entry.takes_positions]
#: encodings of all places, other layers, and kernels
SOME = ["learned", "sinusoidal+t5", "rotary", "tupe", "fire", "transformer_xl", "deberta", "nezha"]
SOME += ["shaw_values:rotary+shaw", "softmax:rotary+deberta", "elu:rotary", "favor:rotary"]


def read(rule, text, causal=True, padding=(0, 0), **flags):
    """The table's and the layers' positions of a text of symbols."""
    side = "decoder" if causal else "encoder"
    stack = replace(encoding_of("learned", causal=causal).stack, side=side)
    indices = torch.tensor([[SYMBOLS[symbol] for symbol in text.split()]])
    before, behind = (torch.full((1, n), PAD) for n in padding)
    indices = torch.cat((before, indices, behind), dim=1)
    made = rule_of(Namespace(position_ids=rule, **flags), stack, SYMBOLS)
    places = made.places(Tokens(indices, indices.ne(PAD)))
    end = indices.size(1) - padding[1]
    return [None if each is None else each[0, padding[0] : end].tolist() for each in places]


#: rule, causal, text, positions of the table, and of the layers
ROWS = [
    # what a decoder reads begins with the separator before a document
    ("documents", True, "</s> a b </s> </s> a", [0, 1, 2, 0, 0, 1], "same"),
    ("documents", False, "<s> a b </s> a b a </s>", [0, 1, 2, 3, 0, 1, 2, 3], "same"),
    (
        "segments",
        True,
        "</s> a . a b . . a",
        [0, 1, 2, 0, 1, 2, 0, 0],
        [0, 0, 0, 1, 1, 1, 2, 3],
    ),
    ("segments", False, "a b . b", [0, 1, 2, 0], [0, 0, 0, 1]),
    ("digits", True, "</s> 1 2 + 0 = 2 1 0 a", [0, 1, 2, 0, 1, 0, 1, 2, 3, 0], None),
    ("digits", False, "1 2 2", [1, 2, 3], None),
    # 12 + 20 = 23, with two answers that follow each other
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


def registered(cases):
    """The cases of rules that are there; packs have some of them."""
    return [case for case in cases if case[0] in POSITION_RULES]


@pytest.mark.parametrize("padding", [(0, 0), (3, 0), (0, 2)])
@pytest.mark.parametrize("rule, causal, text, table, layers", registered(ROWS))
def test_positions_of_rules(rule, causal, text, table, layers, padding):
    flags = {"position_digits": "0 1 2"}
    got = read(rule, text, causal, padding, **flags)
    assert got == [table, table if layers == "same" else layers]


def test_separators_are_symbols_of_choice():
    assert read("documents", "a . b + a", False, position_separators=". +")[0] == [0, 1, 0, 1, 0]
    with pytest.raises(UsageError, match="--position-separators ';': ';' is not in the dictionary"):
        read("documents", "a", position_separators=";")


@pytest.mark.parametrize("rule", POSITION_RULES)
def test_positions_follow_from_the_tokens_before(rule):
    """Otherwise a cache would hold keys of other positions."""
    text = "</s> 1 . 2 + 2 0 = 2 . 0 </s> 1 + 1 = 2"
    whole = read(rule, text, position_digits="0 1 2")
    words = text.split()
    for length in range(1, len(words)):
        part = read(rule, " ".join(words[:length]), position_digits="0 1 2")
        assert part == [each and each[:length] for each in whole]


#: by rule, flags that find something in the tests' texts, and an encoding of the rule
RULES = {
    "documents": ["--position-separators", "w1 w4 w9 w30"],
    "segments": ["--position-separators", "w1 w4 w9 w30 w31"],
    "digits": ["--position-digits", " ".join(f"w{number}" for number in range(30))],
    "coupling": ["--position-separators", "w1 w4 w9 w30 w31 w32 w40"],
}
CASES = [("documents", name) for name in SOME]
CASES += [("segments", "sinusoidal+rotary"), ("segments", "learned+alibi")]
CASES += [("segments", "learned+transformer_xl"), ("segments", "elu:sinusoidal+rotary")]
CASES += [("digits", "learned"), ("digits", "learned+t5")]


def model_of(rule, name, *flags):
    return tiny(name, "--position-ids", rule, *RULES[rule], *flags)


@pytest.mark.parametrize("rule, name", registered(CASES))
@torch.no_grad()
def test_cached_decoding_equals_the_full_forward(rule, name):
    model, source, target = model_of(rule, name), sentences(3, 7), sentences(3, 12, seed=1)
    target[0, :3] = source[1, :2] = PAD
    full, _ = model(source, None, target)
    real = target.ne(PAD)
    for steps in ([4] + [1] * 8, [5, 3, 4]):
        got = decode_in_steps(model, source, target, steps)
        torch.testing.assert_close(got[real], full[real], atol=1e-5, rtol=0)
    other = tiny(name)
    other.load_state_dict(model.state_dict())
    assert not torch.allclose(other(source, None, target)[0][real], full[real], atol=1e-4)


@pytest.mark.parametrize("rule, name", registered(CASES))
@torch.no_grad()
def test_beam_search_may_reorder_hypotheses(rule, name):
    model, source, target = model_of(rule, name), sentences(1, 7), sentences(3, 12, seed=1)
    source = source.expand(3, -1)
    encoder_out, state = model.encoder(source), {}
    for step in range(1, 13):
        out, _ = model.decoder(target[:, :step], encoder_out=encoder_out, incremental_state=state)
        full, _ = model(source, None, target[:, :step])
        torch.testing.assert_close(out[:, -1], full[:, -1], atol=1e-5, rtol=0)
        order = torch.tensor([[1, 0, 2], [2, 2, 0]][step % 2])
        target = torch.cat((target[order, :step], target[:, step:]), dim=1)
        model.decoder.reorder_incremental_state_scripting(state, order)


@pytest.mark.parametrize("rule, name", registered(CASES))
@torch.no_grad()
def test_padding_changes_nothing(rule, name):
    model, source, target = model_of(rule, name), sentences(1, 9), sentences(1, 9, seed=1)
    alone, _ = model(source, None, target)
    gap = torch.full((1, 3), PAD)
    others = sentences(2, 12, seed=2)
    for left in (True, False):
        parts = [(gap, row) if left else (row, gap) for row in (source, target)]
        source_row, target_row = (torch.cat(part, dim=1) for part in parts)
        batch = (torch.cat((others, source_row)), None, torch.cat((others, target_row)))
        got = model(*batch)[0][-1]
        got = got[3:] if left else got[:-3]
        torch.testing.assert_close(got, alone[0], atol=1e-5, rtol=0)


ENCODERS = [name for name in TAKERS if not causal_only(name)] + SOME


class Given:
    """A rule that gives *ids* (B, S) to any tokens."""

    zero_is_none = False

    def __init__(self, ids):
        self.ids = ids

    def places(self, tokens):
        """See PositionRule."""
        ids = self.ids[:, : tokens.indices.size(1)]
        return Ruled(ids, ids)


def encode(model, source, ids):
    """States of the encoder of a model that reads positions, at those of *ids*."""
    model.encoder.positions.assigner.rule = Given(ids)
    return model.encoder(source)["encoder_out"][0]


@pytest.mark.parametrize("name", dict.fromkeys(ENCODERS))
@torch.no_grad()
def test_positions_that_are_counted_are_the_default(name):
    model, plain = tiny(name, "--position-ids", "documents"), tiny(name)
    model.load_state_dict(plain.state_dict())
    source = sentences(2, 7)
    source[0, :2] = PAD
    ids = torch.tensor([[0, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6]])
    real, expected = source.t().ne(PAD), plain.encoder(source)["encoder_out"][0]
    got = encode(model, source, ids)
    torch.testing.assert_close(got[real], expected[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", dict.fromkeys(ENCODERS))
@torch.no_grad()
def test_tokens_may_change_places_if_they_keep_their_positions(name):
    model, source = tiny(name, "--position-ids", "documents"), sentences(2, 7)
    ids = torch.tensor([[3, 0, 1, 9, 4, 2, 12], [0, 1, 2, 0, 1, 2, 3]])
    order = torch.tensor([4, 0, 6, 2, 1, 5, 3])
    before = encode(model, source, ids)
    after = encode(model, source[:, order], ids[:, order])
    torch.testing.assert_close(after, before[order], atol=1e-5, rtol=0)


#: without those of linear attention, which has no mask of pairs
MASKED = [n for n in dict.fromkeys(ENCODERS) if n.partition(":")[0] not in LINEAR]


@pytest.mark.parametrize("name", MASKED)
@torch.no_grad()
def test_documents_that_do_not_see_each_other_are_as_alone(name, monkeypatch):
    """Positions start again: with a mask between documents each is what it is by itself."""
    separator = VOCABULARY.index("w1")
    flags = ("--position-ids", "documents", "--position-separators", "w1")
    model, first, second = tiny(name, *flags).double(), sentences(2, 4), sentences(2, 6, seed=1)
    first[:, -1] = second[:, -1] = separator
    first[:, :-1][first[:, :-1] == separator] = second[:, :-1][second[:, :-1] == separator] = 20
    alone = [model.encoder(text)["encoder_out"][0] for text in (first, second)]
    plain = StackPositions.prepare
    document = torch.tensor([0] * 4 + [1] * 6)
    mask = torch.zeros(10, 10, dtype=torch.double)
    mask = mask.masked_fill(document != document.unsqueeze(1), float("-inf"))

    def masked(*arguments):
        bundles = plain(*arguments)
        for bundle in bundles.values():
            bias = bundle["bias"]
            bundle["bias"] = mask.view(1, 1, 10, 10) if bias is None else bias + mask
        return bundles

    monkeypatch.setattr(StackPositions, "prepare", masked)
    both = model.encoder(torch.cat((first, second), dim=1))["encoder_out"][0]
    torch.testing.assert_close(both, torch.cat(alone), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "first, message",
    [
        (-1, "a position of the encoder is -1"),
        (1018, "go up to 1024, and the encoder has 1024"),
    ],
)
def test_positions_that_the_model_has_not_are_refused_in_one_line(first, message):
    model, ids = tiny("rotary", "--position-ids", "documents"), torch.arange(first, first + 7)
    with pytest.raises(UsageError, match=message) as error:
        encode(model, sentences(2, 7), ids.expand(2, -1))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["learned", "rotary+shaw", "alibi"])
@torch.no_grad()
def test_a_cache_holds_keys_at_the_positions_of_a_rule(name):
    model = language_model(name, "--position-ids", "documents")
    tokens, ids, state = sentences(2, 6), torch.tensor([[3, 0, 7, 7, 1, 2], [0, 1, 0, 1, 2, 0]]), {}
    model.decoder.positions.assigner.rule = Given(ids)
    full = model(tokens)[0]
    outputs = [model.decoder(tokens[:, :n], incremental_state=state)[0] for n in (2, 3, 6)]
    torch.testing.assert_close(torch.cat(outputs, dim=1), full, atol=1e-5, rtol=0)
    model.decoder.positions.assigner.rule = Given(ids.flip(0))
    assert not torch.allclose(model(tokens)[0], full, atol=1e-4)
