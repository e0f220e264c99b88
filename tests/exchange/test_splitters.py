"""A tokenizer.json numbers raw text as the model's own subwords and dictionary do."""

import contextlib
import io
import random

import pytest
from fairseq.data import Dictionary
from support.conversion import convert, refuses
from support.expressed import EXPRESSED, checkpoint_of
from support.vocabularies import learn_pieces, save_tokenizer

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.huggingface.sentencepiece_file import read_pieces
from fairseq_posenc.exchange.huggingface.splitters import Subwords, splitter_of
from fairseq_posenc.exchange.huggingface.symbols import TRANSLATION_MARKS, write_symbols
from fairseq_posenc.serving.preparation import Preparation, Text

SYLLABLES = "ba be bi do du fa gäh kü lo mi ña os pu ri so tu vé wa xe zo".split()
ODD = ["", "   ", "x", "a  double   space", "tab\there", "ﬁ ① Ｆｕｌｌ width", "naïve Ünïcode"]
ODD += [
    "日本語",
    "a\u00a0no-break b\u3000wide",
    "e\u0301 combined",
    "\u200bzero",
    "“quotes”…",
    "@@ @",
]
ODD += ["▁under", "badu☃ ☃ba ☃☃", "low@@ er", "👩‍👩‍👧"]

SPACES = 3 * " "  # runs of spaces, which some tokenizers of transformers have as symbols
ODD += [f"ba{SPACES}ba  ba"]
ODD += ["ba\x1cdu", "\u2581", "\u1112\u1161\u11ab \u1100\u1161", "ﾊﾟｶﾞ", "e\u0301\u0301", "ΟΔΟΣ. ΣΑΣ"]
ODD += ["שלום ba", "السلام", "٣ １２ ½", "𐍈" * 200, "ba\u00addu\u2060mi\ufeff", "\u202eab\u202c"]
#: Names of symbols, which are text in a text.
NAMES = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", "<0x0A>", "madeupword0000", "[SEP]"]
NAMED = [f.format(name) for name in NAMES for f in ("{}", "{} ba", "ba {}du", "<{0}{0}")]


def lines_of(seed, count):
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(150)]
    return [" ".join(draw.choices(words, k=draw.randint(1, 12))) + " ." for _ in range(count)]


TRAIN, TEST = lines_of(1, 400), [*lines_of(1, 450)[400:], *lines_of(2, 150), *ODD, *NAMED]


@pytest.fixture(scope="module")
def subwords(tmp_path_factory):
    """The file of the subwords of a kind, learned from TRAIN once."""
    folder = tmp_path_factory.mktemp("subwords")

    def sentencepiece(kind, **more):
        prefix = folder / "-".join([kind, *more])
        if not prefix.with_suffix(".model").exists():
            flags = {"vocab_size": 90, "character_coverage": 1.0, "model_type": kind, **more}
            learn_pieces(prefix, TRAIN, **flags)
        return prefix.with_suffix(".model")

    def merges():
        learn = pytest.importorskip("subword_nmt.learn_bpe", reason="learns the merges")
        with contextlib.redirect_stderr(io.StringIO()), open(folder / "codes", "w") as out:
            learn.learn_bpe(TRAIN, out, 60)
        return folder / "codes"

    def of_transformers(name, made, spaces=(), **more):
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        made.train_from_iterator(TRAIN, 330, show_progress=False, special_tokens=special, **more)
        made.add_tokens(list(spaces))
        save_tokenizer(folder / name, made)
        return folder / name

    def bytes_of_gpt2():
        tokenizers = pytest.importorskip("tokenizers", reason="learns the merges")
        made = tokenizers.ByteLevelBPETokenizer()
        return of_transformers("gpt2", made, [SPACES[:2], SPACES])

    def pieces_of_t5():
        tokenizers = pytest.importorskip("tokenizers", reason="learns the pieces")
        made = tokenizers.SentencePieceUnigramTokenizer()
        return of_transformers("t5", made, unk_token="<unk>")

    return {
        "unigram": ("sentencepiece", lambda: sentencepiece("unigram")),
        "bpe": ("sentencepiece", lambda: sentencepiece("bpe")),
        "bytes": (
            "sentencepiece",
            lambda: sentencepiece("bpe", byte_fallback=True, vocab_size=330),
        ),
        "as it is": (
            "sentencepiece",
            lambda: sentencepiece("unigram", normalization_rule_name="identity"),
        ),
        "no space": ("sentencepiece", lambda: sentencepiece("unigram", add_dummy_prefix=False)),
        "merges": ("subword-nmt", merges),
        "byte pairs": ("transformers", bytes_of_gpt2),
        "pieces": ("transformers", pieces_of_t5),
        "unigram bytes": (
            "sentencepiece",
            lambda: sentencepiece("unigram", byte_fallback=True, vocab_size=330),
        ),
        "symbols": ("none", lambda: None),
    }


def dictionary_of(preparation, lines):
    """A dictionary of the symbols of lines, of which it lacks some that others have."""
    found = Dictionary()
    for line in lines:
        for symbol in preparation.source(line):
            if symbol != "<mask>":
                found.add_symbol(symbol)
    found.finalize(padding_factor=8)
    return found


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        *("unigram", "bpe", "bytes", "unigram bytes", "as it is", "no space"),
        *("merges", "byte pairs", "pieces", "symbols"),
    ],
)
def test_numbers_are_the_same(name, lowercase, subwords, tmp_path):
    """Also where the dictionary lacks symbols of the subwords: they are ``<unk>`` to fairseq."""
    tokenizers = pytest.importorskip("tokenizers", reason="the library that reads the file")
    kind, make = subwords[name]
    if kind == "transformers" and lowercase:
        pytest.skip("such a tokenizer takes a line as it is")
    file = make()
    text = Text(subwords=kind, subword_file=file and str(file), lowercase=lowercase)
    preparation = Preparation(text)
    dictionary = dictionary_of(preparation, [*TRAIN[:25], f"ba{SPACES}ba"])
    symbols = list(dictionary.symbols)
    path = text.subword_file
    splitter = splitter_of(Subwords(text, path, path), "encoder", symbols, hides=True)
    assert bool(splitter.hidden) == (name != "symbols")
    write_symbols(str(tmp_path), dictionary, 100, TRANSLATION_MARKS, splitter)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.encode_special_tokens = True  # transformers' split_special_tokens
    known, same = 0, _in_sentencepiece(splitter.sentencepiece, tokenizer)
    assert same == (name in ("bpe", "bytes") and not lowercase)
    for line in TEST:
        if kind == "transformers" and not line.strip():
            continue  # white space is a symbol there, which fairseq's dictionary cannot hold
        want = [dictionary.index(symbol) for symbol in preparation.source(line)]
        got = tokenizer.encode(line).ids
        assert got[-1] == dictionary.eos()
        assert [n if n < len(symbols) else dictionary.unk() for n in got[:-1]] == want, line
        if all(number > dictionary.unk() for number in want):
            known += 1
            restored = preparation.restore(preparation.source(line))
            assert " ".join(tokenizer.decode(got).split()) == restored
    assert known > 20


def _in_sentencepiece(content, tokenizer):
    """Whether there is a model of SentencePiece, which then has to give the same numbers."""
    if content is not None:
        module = pytest.importorskip("sentencepiece", reason="reads the model")
        model = module.SentencePieceProcessor(model_proto=content)
        assert [model.id_to_piece(n) for n in range(4)] == ["<s>", "<pad>", "</s>", "<unk>"]
        assert len(model) == tokenizer.get_vocab_size()
        for line in TEST:
            assert model.encode(" ".join(line.split())) == tokenizer.encode(line).ids[:-1], line
    return content is not None


def test_what_cannot_be_carried_is_said(subwords, tmp_path):
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "ba"]

    def notes(hides=True, **text):
        found = Text(**text)
        path = found.subword_file
        return " ".join(splitter_of(Subwords(found, path, path), "encoder", symbols, hides).notes)

    assert "split text by --tokenizer moses before" in notes(tokenizer="moses")
    assert "--subwords marked-words has no counterpart" in notes(subwords="marked-words")
    merges = str(subwords["merges"][1]())
    given = {"subwords": "subword-nmt", "subword_file": merges}
    assert notes(**given) == ""
    assert "which the class cannot hide" in notes(hides=False, **given)
    (tmp_path / "old").write_text("b a\n")
    given["subword_file"] = str(tmp_path / "old")
    assert "do not begin with #version: 0.2" in notes(**given)


def test_symbols_behind_the_dictionary_are_in_the_order_of_the_merges(tmp_path):
    """Two exports of a model are the same, byte for byte."""
    (tmp_path / "codes").write_text("#version: 0.2\nb a</w>\nb u\nbu d</w>\n")
    text, path = Text(subwords="subword-nmt"), str(tmp_path / "codes")
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "ba"]
    splitter = splitter_of(Subwords(text, path, path), "encoder", symbols, hides=True)
    assert splitter.hidden == ("b@@", "a</w>", "u@@", "bu@@", "d</w>", "bud</w>")


def test_damaged_models_are_refused(tmp_path, subwords):
    whole = subwords["unigram"][1]().read_bytes()
    for content in (b"", whole[:100], b"not a model", whole[:-3]):
        (tmp_path / "model").write_bytes(content)
        with pytest.raises(UsageError, match="cannot be read as a model of SentencePiece"):
            read_pieces(str(tmp_path / "model"))


@pytest.mark.parametrize("name", ["bart", "mbart"])
def test_an_exported_folder_translates_raw_text(name, subwords, transformers, tmp_path):
    """Its rows behind the dictionary are never produced, and it can be imported again."""
    merges = subwords["merges"][1]()
    preparation = Preparation(Text(subwords="subword-nmt", subword_file=str(merges)))
    words = dictionary_of(preparation, TRAIN[:25]).symbols[4:]
    target, path = EXPRESSED[name].target, checkpoint_of(tmp_path / "ours", name, words)
    given = ("--subwords", "subword-nmt", "--subword-file", merges, "--verify")
    convert("export", target, path, tmp_path / "theirs", *given)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    unknown = len(words) + 4
    assert model.config.vocab_size > unknown
    batch = tokenizer(TEST[:3], return_tensors="pt", padding=True)
    rows = model.generate(**batch)
    assert rows.max() < unknown and all(map(str.strip, tokenizer.batch_decode(rows)))
    convert("import", target, tmp_path / "theirs", tmp_path / "back", "--verify")
    assert (tmp_path / "back" / "dict.txt").read_text() == "".join(f"{w} 1\n" for w in words)


def test_contradictory_flags_are_refused(tmp_path):
    path = checkpoint_of(tmp_path / "ours", "bart")
    arguments = ("export", "hf-bart", path, tmp_path / "out")
    refuses(["--subword-file x: belongs to"], *arguments, "--subword-file", "x")
    refuses(["--subwords is subword-nmt"], *arguments, "--subwords", "subword-nmt")
    folder = ("--text-of", tmp_path)
    refuses(["give it without --subwords"], *arguments, *folder, "--subwords", "none")
    refuses([f"--text-of {tmp_path}: its model.json cannot be read"], *arguments, *folder)
