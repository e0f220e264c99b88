"""A tokenizer.json gives raw text the same token numbers as the model's subwords and dictionary."""

import contextlib
import functools
import io
import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary
from support.conversion import OURS, convert, learn_pieces, refuses
from support.expressed import EXPRESSED, LONGEST, checkpoint_of, load, logits_of, started

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import read_dictionary
from fairseq_posenc.exchange.huggingface import sentencepiece_file as spm
from fairseq_posenc.exchange.huggingface.splitters import Subwords, splitter_of
from fairseq_posenc.exchange.huggingface.texts import TRANSLATION_MARKS, write_symbols
from fairseq_posenc.models.kinds import CAUSAL, MASKED, PAD, TRANSLATION
from fairseq_posenc.serving.preparation import Preparation, Text
from fairseq_posenc.serving.transformers_tokenizer import dictionary

pytestmark = pytest.mark.properties

SYLLABLES = "ba be bi do du fa gäh kü lo mi ña os pu ri so tu vé wa xe zo".split()
ODD = ["", "   ", "x", "a  double   space", "tab\there", "ﬁ ① Ｆｕｌｌ width", "naïve Ünïcode"]
ODD += ["日本語", "a\u00a0no-break b\u3000wide", "e\u0301 combined", "\u200bzero", "“quotes”…"]
ODD += ["@@ @", "ba  ba ", "12 3x4", "ba<x>du"]
ODD += ["▁under", "badu☃ ☃ba ☃☃", "low@@ er", "👩‍👩‍👧"]

SPACES = 3 * " "  # some tokenizers of transformers have symbols for runs of spaces
ODD += [f"ba{SPACES}ba  ba"]
ODD += ["ba\x1cdu", "\u2581", "\u1112\u1161\u11ab \u1100\u1161", "ﾊﾟｶﾞ", "e\u0301\u0301", "ΟΔΟΣ. ΣΑΣ"]
ODD += ["שלום ba", "السلام", "٣ １２ ½", "𐍈" * 200, "ba\u00addu\u2060mi\ufeff", "\u202eab\u202c"]
#: Names of symbols, which are ordinary characters if they occur in a text.
NAMES = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", "<0x0A>", "madeupword0000", "[SEP]"]
NAMED = [f.format(name) for name in NAMES for f in ("{}", "{} ba", "ba {}du", "<{0}{0}")]


def lines_of(seed, count):
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(150)]
    return [" ".join(draw.choices(words, k=draw.randint(1, 12))) + " ." for _ in range(count)]


TRAIN, TEST = lines_of(1, 400), [*lines_of(1, 450)[400:], *lines_of(2, 150), *ODD, *NAMED]


#: Settings of SentencePiece, and the reason if a tokenizer.json cannot have the same effect.
_BYTES = {"byte_fallback": True, "vocab_size": 330}
_SPACED = "its SentencePiece model must be unigram or BPE, and put ▁ before words"
PIECES = {
    "unigram": ({}, ""),
    "bpe": ({"model_type": "bpe"}, ""),
    "bytes": ({"model_type": "bpe", **_BYTES}, ""),
    "unigram bytes": (_BYTES, ""),
    "as it is": ({"normalization_rule_name": "identity"}, ""),
    "lower case": ({"normalization_rule_name": "nmt_nfkc_cf"}, ""),
    "no signs": ({"normalization_rule_name": "nfkc"}, ""),
    "no space": ({"add_dummy_prefix": False}, ""),
    "all spaces": ({"remove_extra_whitespaces": False}, ""),
    "across words": ({"split_by_whitespace": False}, ""),
    "merged across words": ({"split_by_whitespace": False, "model_type": "bpe"}, ""),
    "digits": ({"split_digits": True}, ""),
    "control": ({"control_symbols": "<x>"}, ""),
    "other names": ({"unk_piece": "[UNK]", "pad_id": 3, "pad_piece": "[PAD]"}, ""),
    "spaces behind": ({"treat_whitespace_as_suffix": True}, _SPACED),
    "spaces as they are": ({"escape_whitespaces": False}, _SPACED),
    "words": ({"model_type": "word"}, _SPACED),
    "characters": ({"model_type": "char", "vocab_size": 40}, _SPACED),
    "users": ({"user_defined_symbols": "ba"}, "the SentencePiece model has user-defined symbols"),
}


ROLES = {f"{role[1:-1].lower()}_token": ours for role, ours in OURS.items()}


@pytest.fixture(scope="module")
def subwords(tmp_path_factory):
    """A function that maps a name to a kind of subwords and their file, learned from TRAIN."""
    folder = tmp_path_factory.mktemp("subwords")

    def pieces(name):
        usual = {"vocab_size": 90, "character_coverage": 1.0, "model_type": "unigram"}
        flags = {**usual, **PIECES[name][0]}
        as_it_is = flags.pop("escape_whitespaces", None)  # not a setting of the trainer
        file = learn_pieces(folder / name, TRAIN, **flags)
        if as_it_is is not None:
            model = spm.read_model(file)
            model.normalizer_spec.escape_whitespaces = as_it_is
            file.write_bytes(model.SerializeToString())
        return file

    def merges():
        learn = pytest.importorskip("subword_nmt.learn_bpe", reason="it learns the merges")
        with contextlib.redirect_stderr(io.StringIO()), open(folder / "codes", "w") as out:
            learn.learn_bpe(TRAIN, out, 60)
        return folder / "codes"

    def of_transformers(name, learner, spaces=(), **more):
        made = getattr(pytest.importorskip("tokenizers", reason="learns them"), learner)()
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        made.train_from_iterator(TRAIN, 330, show_progress=False, special_tokens=special, **more)
        made.add_tokens(list(spaces))
        (folder / name).mkdir()
        made.save(str(folder / name / "tokenizer.json"))
        (folder / name / "tokenizer_config.json").write_text(json.dumps(ROLES))
        return folder / name

    def word_pieces():
        pytest.importorskip("tokenizers", reason="text is split with tokenizers")
        (folder / "bert").mkdir()
        symbols = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", *SYLLABLES, "☃"]
        symbols += [f"##{syllable}" for syllable in SYLLABLES]
        (folder / "bert" / "vocab.txt").write_text("\n".join(symbols) + "\n", encoding="utf-8")
        (folder / "bert" / "tokenizer_config.json").write_text('{"strip_accents": false}')
        return folder / "bert"

    make = {
        "merges": ("subword-nmt", merges),
        "byte pairs": (
            "transformers",
            lambda: of_transformers("gpt2", "ByteLevelBPETokenizer", [SPACES[:2], SPACES]),
        ),
        "pieces": (
            "transformers",
            lambda: of_transformers("t5", "SentencePieceUnigramTokenizer", unk_token="<unk>"),
        ),
        "word pieces": ("transformers", word_pieces),
        "symbols": ("none", lambda: None),
    }

    @functools.lru_cache(maxsize=None)
    def get(name):
        kind, learn = make.get(name, ("sentencepiece", lambda: pieces(name)))
        file = learn()
        return kind, file and str(file)

    return get


def dictionary_of(preparation, lines):
    """A dictionary of the symbols in *lines*; it lacks some symbols of other lines."""
    found = Dictionary()
    for line in lines:
        for symbol in preparation.source(line):
            if symbol != "<mask>":
                found.add_symbol(symbol)
    found.finalize(padding_factor=8)
    return found


def carried(name, lowercase, subwords, hides=True):
    """The text preparation, a dictionary that lacks some of its symbols, and the splitter."""
    kind, path = subwords(name)
    text = Text(subwords=kind, subword_file=path, lowercase=lowercase)
    preparation = Preparation(text)
    found = dictionary_of(preparation, [*TRAIN[:25], f"ba{SPACES}ba"])
    symbols = list(found.symbols)
    return preparation, found, splitter_of(Subwords(text, path, path), "encoder", symbols, hides)


@pytest.mark.parametrize("name", [name for name, (_, said) in PIECES.items() if said])
def test_settings_of_sentencepiece_that_cannot_be_written_are_said(name, subwords):
    words = f"text is not split into subwords: {PIECES[name][1]}"
    assert words in " ".join(carried(name, False, subwords)[2].notes)


WRITTEN = [(name, False) for name, (_, said) in PIECES.items() if not said]
WRITTEN += [(name, False) for name in ("merges", "byte pairs", "pieces", "symbols")]
WRITTEN += [(name, True) for name in ("unigram", "bpe", "merges", "symbols")]


@pytest.mark.parametrize("name, lowercase", WRITTEN)
def test_numbers_are_the_same(name, lowercase, subwords, tmp_path):
    """Subwords that are not in the dictionary are ``<unk>``, as in fairseq."""
    tokenizers = pytest.importorskip("tokenizers", reason="the library that reads the file")
    preparation, dictionary, splitter = carried(name, lowercase, subwords)
    symbols = list(dictionary.symbols)
    assert bool(splitter.hidden) == (name != "symbols")
    write_symbols(str(tmp_path), dictionary, 100, TRANSLATION_MARKS, splitter)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.encode_special_tokens = True  # split_special_tokens in transformers
    content, known = splitter.sentencepiece, 0
    as_bpe = PIECES.get(name, ({},))[0].get("model_type") == "bpe" and not lowercase
    assert (content is not None) == as_bpe
    if content is not None:  # the SentencePiece model must give the same numbers
        module = pytest.importorskip("sentencepiece", reason="the model is read with it")
        model = module.SentencePieceProcessor(model_proto=content)
        assert [model.id_to_piece(n) for n in range(4)] == ["<s>", "<pad>", "</s>", "<unk>"]
        assert len(model) == tokenizer.get_vocab_size()
        for line in TEST:
            assert model.encode(" ".join(line.split())) == tokenizer.encode(line).ids[:-1], line
    for line in TEST:
        if subwords(name)[0] == "transformers" and not line.strip():
            continue  # fairseq's dictionary cannot hold this tokenizer's white-space symbols
        want = [dictionary.index(symbol) for symbol in preparation.source(line)]
        got = tokenizer.encode(line).ids
        assert got[-1] == dictionary.eos()
        assert [n if n < len(symbols) else dictionary.unk() for n in got[:-1]] == want, line
        if all(number > dictionary.unk() for number in want):
            known += 1
            restored = preparation.restore(preparation.source(line))
            assert " ".join(tokenizer.decode(got).split()) == restored
    assert known > 20


def split(hides=True, **text):
    path = text.get("subword_file")
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "ba"]
    return splitter_of(Subwords(Text(**text), path, path), "encoder", symbols, hides)


def test_what_cannot_be_carried_is_said(subwords, tmp_path):
    def notes(**text):
        return " ".join(split(**text).notes)

    assert "apply --tokenizer moses to inputs" in notes(tokenizer="moses")
    assert "--subwords marked-words has no counterpart" in notes(subwords="marked-words")
    merges = subwords("merges")[1]
    given = {"subwords": "subword-nmt", "subword_file": merges}
    assert notes(**given) == ""
    assert "and the class would produce them" in notes(hides=False, **given)
    (tmp_path / "old").write_text("b a\n")
    given["subword_file"] = str(tmp_path / "old")
    assert "do not begin with #version: 0.2" in notes(**given)


def test_symbols_behind_the_dictionary_are_in_the_order_of_the_merges(tmp_path):
    """Two exports of a model must be equal, byte for byte."""
    (tmp_path / "codes").write_text("#version: 0.2\nb a</w>\nb u\nbu d</w>\n")
    splitter = split(subwords="subword-nmt", subword_file=str(tmp_path / "codes"))
    assert splitter.hidden == ("b@@", "a</w>", "u@@", "bu@@", "d</w>", "bud</w>")


def test_damaged_models_are_refused(tmp_path, subwords):
    whole = Path(subwords("unigram")[1]).read_bytes()
    for content in (b"", whole[:100], b"not a model", whole[:-3]):
        (tmp_path / "model").write_bytes(content)
        with pytest.raises(UsageError, match="cannot be read as a model of SentencePiece"):
            spm.read_model(str(tmp_path / "model"))


#: Rows of support.expressed, each with subwords that exports of its class can contain.
RAW = [("llama", "bpe"), ("grouped", "byte pairs"), ("bart", "merges"), ("mbart", "unigram")]
RAW += [("roberta", "unigram"), ("roberta", "word pieces"), ("modernbert", "byte pairs")]
RAW += [(name, "symbols") for name in ("neox", "bloom", "gpt2", "marian", "m2m100", "t5")]
#: For each kind of model: the suffix of the Auto class, and the tokens before and after a text.
KINDS = {
    CAUSAL.name: ("CausalLM", [2], []),
    MASKED.name: ("MaskedLM", [0], [2]),
    TRANSLATION.name: ("Seq2SeqLM", [], [2]),
}


@pytest.mark.parametrize("name, kind", RAW)
@torch.no_grad()
def test_raw_text_gives_the_logits_of_fairseq_also_when_saved_again(
    name, kind, subwords, transformers, tmp_path
):
    """Subwords that dict.txt lacks have the logits of <unk> and are never generated."""
    row, (subword, file) = EXPRESSED[name], subwords(kind)
    preparation, out = Preparation(Text(subwords=subword, subword_file=file)), tmp_path / "out"
    masked, copied = row.kind is MASKED, row.kind is MASKED and subword == "transformers"
    words = dictionary_of(preparation, TRAIN[:25]).symbols[4:]
    if copied:  # all symbols of the tokenizer
        words = [line.rpartition(" ")[0] for line in dictionary(file).splitlines()]
    path = checkpoint_of(tmp_path / "ours", name, words)
    given = ("--subwords", subword, "--subword-file", file) if file else ()
    convert("export", row.target, path, out, *given)
    auto, first, last = KINDS[row.kind.name]
    model = getattr(transformers, f"AutoModelFor{auto}").from_pretrained(out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out, padding_side="right")

    symbols = read_dictionary(str(path.parent / "dict.txt"), masked).symbols
    number = {symbol: index for index, symbol in enumerate(symbols)}
    split = {text: preparation.source(text) for text in [*TEST[:20], *TEST[200:]] if text.strip()}
    texts = [t for t, line in split.items() if 0 < len(line) < LONGEST - 2 and "<pad>" not in line]
    lines = [[*first, *(number.get(s, 3) for s in split[t]), *last] for t in texts]
    longest = max(map(len, lines))
    tokens = torch.tensor([[*line, *[PAD] * (longest - len(line))] for line in lines])
    real = tokens.ne(PAD)
    batch = tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=masked)
    assert torch.equal(batch["attention_mask"].bool(), real)
    order = torch.arange(len(symbols))
    if copied:
        names = {ours: getattr(tokenizer, role) for role, ours in ROLES.items()}
        names.update({n * "␣": n * " " for n in (2, 3)})
        order = torch.tensor(tokenizer.convert_tokens_to_ids([names.get(s, s) for s in symbols]))
    hidden = batch["input_ids"].ge(len(symbols)) & (not copied)
    assert torch.equal(batch["input_ids"].masked_fill(hidden, int(order[3])), order[tokens])
    if row.kind is TRANSLATION:
        batch["decoder_input_ids"] = started(tokens)
    want, have = logits_of(load(path), row, tokens), model(**batch).logits
    torch.testing.assert_close(have[..., order][real], want[real], atol=1e-5, rtol=1e-5)
    if row.kind is not CAUSAL:  # causal models hide these subwords in generation_config.json only
        assert torch.equal(have[real].argmax(-1), order[want[real].argmax(-1)])
    if not masked:
        short = tokenizer(TEST[:3], return_tensors="pt", padding=True, return_token_type_ids=False)
        rows = model.generate(**short, max_new_tokens=20, do_sample=False)
        assert rows.max() < len(symbols)
    else:
        found = tokenizer(f"ba {tokenizer.mask_token}", split_special_tokens=False)["input_ids"]
        assert found.count(tokenizer.mask_token_id) == 1
    for each in (model, tokenizer):
        each.save_pretrained(tmp_path / "again")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again.model_max_length == LONGEST
    assert again(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert len(tokenizer(["ba " * 300], truncation=True)["input_ids"][0]) == LONGEST
    if not copied:  # the saved folder lacks dict.txt
        shutil.copy(out / "dict.txt", tmp_path / "again")
    convert("import", row.target, tmp_path / "again", tmp_path / "back")
    back = read_dictionary(str(tmp_path / "back" / "dict.txt"), masked).symbols
    assert sorted(back) == sorted(symbols) and (copied or back == symbols)
    order = torch.tensor([back.index(symbol) for symbol in symbols])
    have = logits_of(load(tmp_path / "back" / "checkpoint.pt"), row, order[tokens])[..., order]
    torch.testing.assert_close(have[real], want[real], atol=1e-5, rtol=1e-5)


def test_contradictory_flags_are_refused(tmp_path):
    path = checkpoint_of(tmp_path / "ours", "bart")
    arguments = ("export", "hf-bart", path, tmp_path / "out")
    words = ["--subwords none", "need --subword-file, and no others"]
    refuses(words, *arguments, "--subword-file", "x")
    refuses(["--subwords subword-nmt", words[1]], *arguments, "--subwords", "subword-nmt")
    folder = ("--text-of", tmp_path)
    refuses(["give it without --subwords"], *arguments, *folder, "--subwords", "none")
    refuses([f"--text-of {tmp_path}: its model.json cannot be read"], *arguments, *folder)
