"""Learning subwords: sizes that are kept, texts that come back, mistakes in one line."""

import os
import random

import pytest
from fairseq.data import Dictionary
from support.recipes import error_of, write

from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.cli import main
from fairseq_posenc.exchange.dictionary import dictionary as lines_of
from fairseq_posenc.serving.preparation import Preparation, Text
from fairseq_posenc.serving.subwords import KINDS, in_characters
from fairseq_posenc.text import commands, learning


def learn(kind, *arguments):
    main(["learn-subwords", kind, *map(str, arguments)])


def learning_error(kind, *arguments):
    return error_of(main, ["learn-subwords", kind, *map(str, arguments)])


def apply(kind, *arguments):
    main(["apply-subwords", kind, *map(str, arguments)])


def some_text(path, lines=300, letters="abcdefgh"):
    """A text of words that repeat, and its path."""
    draw = random.Random(1)
    words = ["".join(draw.choices(letters, k=draw.randint(1, 7))) for _ in range(60)]
    return write(path, [" ".join(draw.choices(words, k=8)) for _ in range(lines)])


def test_merges_are_joint_reversible_and_independent_of_the_order(tmp_path):
    texts = [
        some_text(tmp_path / name, 50, letters) for name, letters in (("en", "abcß"), ("de", "bcd"))
    ]
    for order in (1, -1):
        learn("subword-nmt", "--operations", 30, tmp_path / f"codes{order}", *texts[::order])
    codes = list(read_lines(tmp_path / "codes1"))
    assert codes == list(read_lines(tmp_path / "codes-1"))
    assert len(codes) == 31  # the version, then the merges
    apply("subword-nmt", tmp_path / "codes1", texts[0], tmp_path / "out")
    split = list(read_lines(tmp_path / "out"))
    assert [line.replace("@@ ", "") for line in split] == list(read_lines(texts[0]))
    assert any("@@ " in line for line in split)
    main(
        ["join-subwords", "subword-nmt", str(tmp_path / "codes1"), str(tmp_path / "out"), texts[1]]
    )
    assert list(read_lines(texts[1])) == list(read_lines(texts[0]))


def test_a_vocabulary_is_characters_and_merges(tmp_path):
    source = some_text(tmp_path / "in")
    codes, split = tmp_path / "codes", str(tmp_path / "split")
    learn("subword-nmt", "--vocabulary-size", 70, codes, source)
    words = [word for line in read_lines(source) for word in line.split()]
    characters = len({c for w in words for c in w[:-1]}) + len({w[-1] for w in words})
    assert len(list(read_lines(codes))) - 1 == 70 - characters
    apply("subword-nmt", codes, source, split, source, split + "2")
    assert len({symbol for line in read_lines(split) for symbol in line.split()}) <= 70
    assert list(read_lines(split)) == list(read_lines(split + "2"))  # the second input's


def test_merges_are_learned_from_the_most_frequent_words(tmp_path):
    source = write(tmp_path / "in", ["ab ab ab cd cd ef", "ef ef"])
    learn("subword-nmt", "--operations", 9, "--learn-from", 2, tmp_path / "codes", source)
    assert list(read_lines(tmp_path / "codes"))[1:] == ["e f</w>", "a b</w>"]


def test_pieces_are_learned_without_chinese_characters(tmp_path):
    source = write(tmp_path / "in", ["中国人 t恤衫 ok 中国人", "ok7 ok 中国人"])
    learn("marked-pieces", "--operations", 9, tmp_path / "codes", source)
    assert list(read_lines(tmp_path / "codes"))[1:] == ["o k</w>"]


def test_merges_that_cannot_be_learned_or_applied_are_one_line(tmp_path):
    some, empty, codes = write(tmp_path / "some", ["a b"]), write(tmp_path / "empty", []), "codes"
    for workers in ("1", "2"):
        flags = ["apply-subwords", "subword-nmt", "nowhere", "--workers", workers, some, "out"]
        assert "nowhere" in error_of(main, flags)
    assert "no words" in learning_error("subword-nmt", tmp_path / codes, empty)
    for lines in (["a b a b"], ["ab cd"]):  # apply-subwords would refuse codes without merges
        text = write(tmp_path / "text", lines)
        message = learning_error("subword-nmt", tmp_path / codes, text)
        assert f"{text}: no two characters stand together twice" in message
    for flag in ("--operations", "--learn-from"):
        assert f"{flag} 0" in learning_error("subword-nmt", flag, 0, tmp_path / codes, some)
    both = ["--operations", 3, "--vocabulary-size", 9, tmp_path / codes, some]
    assert "not both" in learning_error("subword-nmt", *both)
    assert sorted(os.listdir(tmp_path)) == ["empty", "some", "text"]


@pytest.mark.parametrize("kind", ["subword-nmt", "sentencepiece"])
def test_a_vocabulary_that_the_text_cannot_give_is_one_line(tmp_path, kind):
    if kind == "sentencepiece":
        pytest.importorskip("sentencepiece", reason="an extra")
    source, file = some_text(tmp_path / "in"), tmp_path / "file"
    message = learning_error(kind, "--vocabulary-size", 100000, file, source)
    assert "--vocabulary-size 100000" in message and "no more than " in message
    assert "give more" in learning_error(kind, "--vocabulary-size", 3, file, source)
    assert os.listdir(tmp_path) == ["in"]
    if kind == "subword-nmt":
        learn(kind, "--vocabulary-size", message.rpartition("no more than ")[2], file, source)


HOSTILE = ["Ein Satz.", "5 € (日本)", "a  b\u00a0c\tüber", "ﬁ <unk> ▁ ⁇", ""]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_pieces_with_bytes_give_the_text_back(tmp_path, kind):
    sentencepiece = pytest.importorskip("sentencepiece", reason="an extra")
    source, model = some_text(tmp_path / "in"), str(tmp_path / "a")
    flags = ["--vocabulary-size", 300, "--type", kind, "--byte-fallback", "--learn-from", 200]
    learn("sentencepiece", *flags, model, source)
    assert sentencepiece.SentencePieceProcessor(model_file=model).get_piece_size() == 300
    text = Preparation(Text(subwords="sentencepiece", subword_file=model))
    assert [text.restore(text.source(line)) for line in HOSTILE[:2]] == HOSTILE[:2]
    for line in HOSTILE:
        pieces = text.source(line)
        assert text.source(text.restore(pieces)) == pieces
        assert not any(set(piece) & set(" \n") for piece in pieces)


def test_lines_are_drawn_in_a_stream_and_always_the_same():
    drawn = learning.draw_lines(map(str, range(1000)), 100)
    assert drawn == learning.draw_lines(map(str, range(1000)), 100)
    assert len(set(drawn)) == 100 and 350 < sum(map(int, drawn)) / 100 < 650
    assert learning.draw_lines("abc", 3) == learning.draw_lines("abc", 9) == ["a", "b", "c"]


def test_mistakes_with_pieces_are_one_line(tmp_path):
    pytest.importorskip("sentencepiece", reason="an extra")
    some, empty = write(tmp_path / "some", ["a b"]), write(tmp_path / "empty", ["", ""])
    assert "no words" in learning_error("sentencepiece", tmp_path / "m", empty)
    for file in ("nowhere", some):
        words = ["apply-subwords", "sentencepiece", file, some, str(tmp_path / "out")]
        assert f"{file}: cannot be read as a model" in error_of(main, words)
    for flag, value in (("--learn-from", "0"), ("--character-coverage", "99.0")):
        wrong = learning_error("sentencepiece", flag, value, tmp_path / "m", some)
        assert f"{flag} {value}" in wrong
    assert sorted(os.listdir(tmp_path)) == ["empty", "some"]


LEARNED = ["The cats ran, and the cat sat.", "It's the cat's  garden; a gardener's.", ""] * 3
OTHERS = ["the Gardens", "na\u00efve \u2014 \u4f60\u597d \U0001f600", "tab\there", "</s> 3.5", ""]


@pytest.mark.parametrize("flags", [[], ["--lowercase"]])
def test_byte_level_bpe_has_the_asked_size_and_loses_nothing(tmp_path, flags):
    pytest.importorskip("tokenizers", reason="an extra")
    folder, size = str(tmp_path / "tokenizer"), 270
    source = write(tmp_path / "in", LEARNED)
    learn("byte-bpe", "--vocabulary-size", size, *flags, folder, source)
    (tmp_path / "dict.txt").write_text(lines_of(folder), encoding="utf-8")
    dictionary = Dictionary.load(str(tmp_path / "dict.txt"))
    assert len(dictionary) - dictionary.nspecial == size
    text = Text(subwords="transformers", subword_file="tokenizer")
    model = Preparation(text, str(tmp_path))
    for line in LEARNED + OTHERS:
        (binarised,) = commands.symbol_splitter(folder)([line])
        assert model.source(line) == binarised.split()
        numbers = dictionary.encode_line(binarised, add_if_not_exist=False, append_eos=False)
        assert dictionary.unk() not in numbers
        wanted = line.lower() if flags else line
        assert model.text(binarised.split()) == wanted or "</s>" in line
    assert len(model.source("the cats")) < 6


def test_carriage_returns_at_the_ends_of_lines_are_no_symbols(tmp_path):
    pytest.importorskip("tokenizers", reason="an extra")
    for name, end in (("unix", "\n"), ("windows", "\r\n")):
        text, folder = tmp_path / f"{name}.txt", str(tmp_path / name)
        text.write_bytes(end.join(LEARNED).encode() + end.encode())
        learn("byte-bpe", "--vocabulary-size", 275, folder, text)
        main(["tokenize", str(tmp_path / "unix"), str(text), f"{folder}.pieces"])
        assert list(read_lines(text)) == LEARNED
    for name in ("{}/tokenizer.json", "{}.pieces"):
        one, two = ((tmp_path / name.format(kind)).read_bytes() for kind in ("unix", "windows"))
        assert one == two


def test_bytes_that_cannot_be_learned_are_one_line(tmp_path):
    pytest.importorskip("tokenizers", reason="an extra")
    source = write(tmp_path / "in", LEARNED)
    for size, message in ((5000, "no more than"), (256, "the bytes alone are 256")):
        words = ["--vocabulary-size", size, tmp_path / "out", source]
        assert message in learning_error("byte-bpe", *words)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_other_files_is_not_replaced(tmp_path):
    pytest.importorskip("tokenizers", reason="an extra")
    source, other = write(tmp_path / "in", LEARNED), tmp_path / "runs"
    other.mkdir()
    (other / "tokenizer.json").touch()  # as in a model of transformers
    (other / "pytorch_model.bin").touch()
    small = ["--vocabulary-size", 270]
    for folder in (other, f"{other}/"):
        message = learning_error("byte-bpe", *small, folder, source)
        assert f"{other}: would be replaced, and there is pytorch_model.bin in it" in message
    assert "give a new one" in learning_error("byte-bpe", *small, source, source)
    assert sorted(os.listdir(other)) == ["pytorch_model.bin", "tokenizer.json"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for name in ("empty", "empty/", "link", "absent/"):  # twice the same, with and without a slash
        learn("byte-bpe", *small, f"{tmp_path}/{name}", source)
        files = sorted(os.listdir(tmp_path / name))
        assert files == ["tokenizer.json", "tokenizer_config.json"]
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["absent", "empty", "in", "link", "runs"]


def test_the_vocabulary_is_frequent_characters_and_then_frequent_words():
    counts = {"中国": 9, "天天": 5, "大学": 5, "的": 30, "<unk>": 8, "##国": 8}
    counts = learning.Counter(counts)
    characters = {symbol for word in counts for symbol in in_characters(word)}
    size = len(characters) + 2
    assert learning.choose_words(counts, size, "word", 1.0) == ["中国", "大学"]
    assert learning.choose_words(counts, size, "character", 1.0) == []
    # fewer characters, all the words
    assert len(learning.choose_words(counts, 10, "word", 0.5)) == 3
    message = error_of(learning.choose_words, counts, 5, "word", 1.0)
    assert f"--vocabulary-size 5: the text has {len(characters)} frequent characters" in message


def test_a_list_of_words_is_learned_and_applied(tmp_path):
    source = write(tmp_path / "in", ["中国 的 大学生 大学生", "中国 的 国"])
    learn("marked-words", "--vocabulary-size", 12, tmp_path / "words", source)
    assert list(read_lines(tmp_path / "words")) == ["中国", "大学生"]
    apply("marked-words", tmp_path / "words", source, tmp_path / "out")
    assert list(read_lines(tmp_path / "out")) == list(read_lines(source))
    assert KINDS["marked-words"](str(tmp_path / "words")).split("大学 中国") == [
        "大",
        "##学",
        "中国",
    ]
