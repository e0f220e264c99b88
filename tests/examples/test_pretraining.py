"""Pre-training recipes, English and Chinese: from made-up corpora to checkpoints."""

import random
import re
from argparse import Namespace

import pytest
from fairseq import options, tasks
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.utils import import_user_module
from support.commands import shape
from support.recipes import EXAMPLES, recipe_module, succeed, write

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.subwords import KINDS

pytestmark = pytest.mark.journeys
fold = recipe_module("common", "fold").fold

BERT, CHINESE = EXAMPLES / "bert_pretraining", EXAMPLES / "clue_pretraining"
SUBJECTS = "The cat|A dog|My house|Dr. Brown|The old well-known man".split("|")
VERBS = "sees|likes|finds|does not see|isn't".split("|")
OBJECTS = "the garden|3.5 apples|a (small) dog|\u201enothing\u201c|New York".split("|")
WORDS = "中国 天天 我们 新闻 股票 大学生 足球 比赛 的 了 在 iPhone T恤 2018".split()
FAST = ["--cpu", "--num-workers", "0", "--log-interval", "1"]
TINY = [*shape(1, 16, 16, 2, "encoder"), *FAST, "--tokens-per-sample", "32", "--batch-size", "6"]
UNITS = ["--encoder-layers", "2", "--encoder-embed-dim", "16", "--gau-key-size", "8", *FAST]
ENGLISH = {"SIZE": "90", "LONGEST": "30", "WORKERS": "1"}
MARKED = {"WORDS": "spaces", "OPERATIONS": "30", "WORKERS": "1"}


def sentence(draw):
    return f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)}."


def write_texts(folder, documents, counts):
    (folder / "text").mkdir()
    for split, count in counts.items():
        text = documents(count)
        (folder / "text" / f"{split}.txt").write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def prepared(once):
    """A folder with ``text`` (20 and 4 documents), and with prepare.sh's output ``out``."""
    draw = random.Random(1)

    def line():
        return " ".join(sentence(draw) for _ in range(draw.randint(1, 9)))

    def make(folder):
        counts = {"train": 20, "valid": 4}
        write_texts(
            folder, lambda n: "\n\n\n".join(f"{line()}\n{line()}" for _ in range(n)), counts
        )
        succeed(BERT / "prepare.sh", "text", "out", cwd=folder, **ENGLISH)

    return once("pretraining", make)


@pytest.fixture(scope="session")
def chinese(once):
    """A folder with ``text`` (30 and 8 documents), and prepare.sh's ``512`` and ``diff``."""
    draw = random.Random(1)

    def document():
        return " ".join(
            " ".join([*draw.choices(WORDS, k=draw.randint(3, 12)), "。"])
            for _ in range(draw.randint(1, 60))
        )

    def make(folder):
        counts = {"train": 30, "valid": 8}
        write_texts(folder, lambda n: "".join(document() + "\n" for _ in range(n)), counts)
        for lengths in ("512", "diff"):
            variables = {**MARKED, "LENGTHS": lengths}
            succeed(CHINESE / "prepare.sh", "text", lengths, cwd=folder, **variables)

    return once("chinese", make)


def test_the_data_hold_every_document(prepared, tmp_path):
    data = prepared / "out" / "data-bin"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    lines = data_utils.load_indexed_dataset(str(data / "train"), dictionary)
    lengths = [len(line) for line in lines]
    assert lengths.count(1) == 19  # a lone </s> between 20 documents
    assert max(lengths) <= 31  # 30 tokens and </s>
    texts = [dictionary.string(line).replace("@@ ", "") for line in lines]
    original = (prepared / "text" / "train.txt").read_text(encoding="utf-8").lower()
    assert len(" ".join(texts).split(".")) == len(original.split("."))
    assert any("isn &apos;t" in text for text in texts)
    given = (prepared / "text", prepared / "out")
    again = succeed(BERT / "prepare.sh", *given, cwd=tmp_path, **ENGLISH)
    assert again.stdout == f"{prepared}/out/data-bin exists already\n"


def test_documents_of_wikitext_begin_at_headings_and_keep_capitals(tmp_path):
    pytest.importorskip("tokenizers")
    text = " = One = \n\n = = Part = = \n A role @-@ playing game , <unk> Ω .\n = Two = \n b\n"
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(text * (3 if split == "train" else 1))
    form = {"WIKITEXT": "1", "LOWERCASE": "", "SUBWORDS": "byte-bpe", "SIZE": "258"}
    succeed(BERT / "prepare.sh", ".", "out", cwd=tmp_path, WORKERS="1", **form)
    documents = (tmp_path / "out" / "documents" / "test").read_text()
    assert documents == "One\nPart\nA role-playing game , unk Ω .\n\nTwo\nb\n"
    data = tmp_path / "out" / "data-bin"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    assert len(dictionary) == 4 + 258 and (data / "tokenizer" / "tokenizer.json").exists()
    first = data_utils.load_indexed_dataset(str(data / "test"), dictionary)[2]
    assert "Î ©" in dictionary.string(first) and dictionary.unk() not in first


def test_long_lines_are_broken_at_sentences_and_else_at_words():
    words = "a b . c@@ d e f@@ g@@ h".split()
    assert [" ".join(piece) for piece in fold(words, 4)] == ["a b .", "c@@ d e", "f@@ g@@ h"]
    assert list(fold(["▁a", "b", "▁c"], 2, "▁")) == [["▁a", "b"], ["▁c"]]
    assert list(fold(["a@@"] * 3, 2)) == [["a@@", "a@@"], ["a@@"]]


def test_training_keeps_every_tenth_and_the_last_checkpoint(prepared, tmp_path):
    given = ("tupe_r_masked_lm_base", prepared / "out" / "data-bin", "run", *TINY)
    succeed(BERT / "train.sh", *given, cwd=tmp_path, UPDATES="20", PRECISION="")
    names = {path.name for path in tmp_path.glob("run/*.pt")}
    updates = {int(n) for n in re.findall(r"checkpoint_\d+_(\d+)\.pt", " ".join(names))}
    assert set(range(2, 21, 2)) <= updates and len(updates) <= 11
    assert {"checkpoint_last.pt", "checkpoint_best.pt"} < names
    assert "num_updates=20, lr=0" in (tmp_path / "run" / "train.log").read_text()  # linear decay


# --- Chinese: marked symbols, whole-word masks


@pytest.mark.parametrize(
    "level, expected",
    [
        ("piece", "中 ##国 i ##phon ##e 3 ##. ##5 ##%"),
        ("word", "中国 i ##p ##h ##o ##n ##e 3 ##. ##5 ##%"),
        ("character", "中 ##国 i ##p ##h ##o ##n ##e 3 ##. ##5 ##%"),
    ],
)
def test_words_become_symbols(tmp_path, level, expected):
    common = "abcdefghijklmnopqrstuvwxyz0123456789.%"
    lines = ["中国 中国 中国 iphones iphones hone hone", " ".join([common, *common]), "  "]
    write(tmp_path / "train.txt", lines * 3)
    write(tmp_path / "valid.txt", ["中国 iPhone 3.5%"])
    symbols = {"piece": 99, "word": 90, "character": 99}[level]
    variables = {"LEVEL": level, "OPERATIONS": "4", "SYMBOLS": str(symbols)}
    succeed(CHINESE / "prepare.sh", ".", "out", cwd=tmp_path, **{**MARKED, **variables})
    assert (tmp_path / "out" / "symbols" / "valid").read_text() == expected + "\n"
    kind, file = ("pieces", "bpe.codes") if level == "piece" else ("words", "words.txt")
    subwords = KINDS[f"marked-{kind}"](str(tmp_path / "out" / "data-bin" / file))
    assert subwords.split("中国 iphone 3.5%") == expected.split()  # model folders split alike


def masked_lm(data, *flags):
    import_user_module(Namespace(user_dir=str(CHINESE / "whole_words")))
    parser = options.get_training_parser()
    names = "--task masked_lm --arch gau_masked_lm_tiny --criterion masked_lm --mask-whole-words"
    arguments = [str(data), *names.split(), *flags]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
    return tasks.setup_task(config.task)


@pytest.mark.parametrize("mode", ["none", "eos"])
def test_masks_cover_whole_words(chinese, mode):
    data = chinese / ("512" if mode == "none" else "diff") / "data-bin"
    assert (data / "sample-break-mode").read_text() == mode + "\n"
    blocks = f"--bpe marked_pieces --tokens-per-sample 512 --sample-break-mode {mode}"
    task = masked_lm(data, *blocks.split())
    task.load_dataset("valid")
    dictionary, dataset = task.source_dictionary, task.datasets["valid"]
    longest = masked = total = 0
    for index in range(len(dataset)):
        item = dataset[index]
        source, target = item["net_input.src_tokens"], item["target"]
        hidden = target != dictionary.pad()
        original = source.clone()
        original[hidden] = target[hidden]
        for place in range(1, len(source)):
            if dictionary[original[place]].startswith("##"):
                assert hidden[place] == hidden[place - 1]
                longest += int(hidden[place])
        assert (source[~hidden] == original[~hidden]).all()
        masked, total = masked + int(hidden.sum()), total + len(source)
    assert longest > 0 and 0.05 < masked / total < 0.3
    with pytest.raises(UsageError, match="--mask-whole-words: needs --bpe"):
        masked_lm(data).load_dataset("valid")


def test_training_on_whole_words_goes_through_the_real_command(chinese, tmp_path):
    given = ("gau_masked_lm_tiny", chinese / "512" / "data-bin", "run", *UNITS)
    short = ("--tokens-per-sample", "64", "--batch-size", "2", "--update-freq", "2")
    succeed(CHINESE / "train.sh", *given, *short, cwd=tmp_path, UPDATES="10", PRECISION="")
    log = (tmp_path / "run" / "train.log").read_text()
    assert "num_updates: 10 >= max_update: 10" in log and "'_name': 'marked_pieces'}" in log
    assert re.search(r"valid on 'valid' subset \| .*\| accuracy [0-9.]+ \|", log)
