"""Chinese pre-training recipe: symbols that keep words, whole-word masks, the whole chain."""

import os
import random
import re
import subprocess
import sys

import pytest
from chinese import RECIPE, WORDS
from conftest import SHARED
from fairseq import options, tasks
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY
from recipes import (
    COMMON,
    assert_error,
    bash,
    commands,
    flags_of,
    recipe_module,
    training_of,
    write,
)

from fairseq_posenc.deploy.model_folder import Text, read_model_folder
from fairseq_posenc.errors import UsageError

pytest_plugins = ["chinese"]

recipe_module("clue_pretraining", "bpe")  # which pieces imports later
pieces = recipe_module("clue_pretraining", "pieces")
recipe_module("clue_pretraining", "bpe")  # which pieces imports when it is needed
segmenter = recipe_module("clue_pretraining", "segmenter")
whole_words = recipe_module("clue_pretraining", "whole_words")

SCRIPTS = ("prepare.sh", "train.sh", "train.sbatch")


# --- words and symbols


def letters(word):
    """A stand-in for BPE: one piece a letter."""
    return "@@ ".join(word)


@pytest.mark.parametrize(
    "word, symbols",
    [
        ("中国", "中 ##国"),
        ("。", "。"),
        ("t恤", "t ##恤"),
        ("3.5%", "3 ##. ##5 ##%"),
        ("abc", "a ##b ##c"),
        ("##", "# ###"),
        ("\U00020000人", "\U00020000 ##人"),
        ("カナ一", "カ ##ナ ##一"),
        ("don't_x", "d ##o ##n ##' ##t ##_ ##x"),
    ],
)
def test_every_symbol_of_a_word_but_the_first_is_marked(word, symbols):
    assert pieces.marked(word, letters) == symbols.split()


def test_symbols_give_the_words_back():
    draw = random.Random(5)
    masking = whole_words.MarkedPieces(None)
    for _ in range(200):
        words = draw.choices([*WORDS, "3.5", "##", "x", "，", "A股", "don't"], k=draw.randint(1, 9))
        symbols = [symbol for word in words for symbol in pieces.marked(word, letters)]
        assert masking.decode(" ".join(symbols)) == " ".join(words)
        assert sum(map(masking.is_beginning_of_word, symbols)) == len(words)


def test_case_changes_after_the_segmentation(monkeypatch):
    seen = []
    cut = lambda line: seen.append(line) or ["T恤", " "]  # noqa: E731
    monkeypatch.setattr(pieces, "jieba_words", lambda: cut)
    assert pieces.word_writer(False, False)("T恤 ") == "t恤" and seen == ["T恤 "]
    assert pieces.word_writer(True, True)(" A股 \u3000 涨 ") == "A股 涨"


def test_word_pieces_are_learned_without_chinese_characters():
    assert pieces.latin_writer()("中国 t恤衫 iphone7 3.50 ， ok") == "iphone7 50 ok"


@pytest.mark.parametrize(
    "flags, expected",
    [([], "甲 一\n乙\n丙\n"), (["--blank-lines"], "甲 一 乙\n丙\n")],
)
def test_documents_of_both_layouts(tmp_path, flags, expected):
    source = write(tmp_path / "in", ["", "甲 一 ", "乙", "", " ", "丙", ""])
    pieces.main(["documents", *flags, source, str(tmp_path / "out")])
    assert (tmp_path / "out").read_text(encoding="utf-8") == expected


def test_a_text_without_text_is_one_line_and_leaves_nothing(tmp_path):
    source = write(tmp_path / "in", ["", " "])
    with pytest.raises(SystemExit, match="in: contains no text"):
        pieces.main(["documents", source, str(tmp_path / "out")])
    assert os.listdir(tmp_path) == ["in"]


def test_jieba_missing_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(SystemExit, match="pip install jieba"):
        segmenter.jieba_words()


def test_jieba_separates_words_and_leaves_no_file(tmp_path, monkeypatch):
    pytest.importorskip("jieba", reason="needs jieba")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert list(segmenter.jieba_words()("我来到北京清华大学")) == ["我", "来到", "北京", "清华大学"]
    assert os.listdir(tmp_path) == []


# --- the whole chain


def test_the_dictionary_has_both_forms_and_how_it_was_made(chinese):
    data = chinese / "fixed" / "data-bin"
    symbols = Dictionary.load(str(data / "dict.txt")).symbols
    assert {"中", "##国", "天", "##天", "。"} < set(symbols)
    assert not any(re.search("[A-Z]", symbol) for symbol in symbols if symbol[0] != "<")
    assert (data / "text").read_text() == "lengths 512\nsegmenter spaces\nkeep-case \n"
    assert (data / "bpe.codes").read_text().startswith("#version")


def test_documents_of_varied_length_are_lines_that_fit(chinese):
    fixed, varied = (
        data_utils.load_indexed_dataset(str(chinese / name / "data-bin" / "train"))
        for name in ("fixed", "varied")
    )
    assert len(fixed) == 30 and max(fixed.sizes) > 511
    assert len(varied) > 30 and max(varied.sizes) <= 511
    # the same symbols; a cut adds an end of line and nothing else
    assert varied.sizes.sum() - len(varied) == fixed.sizes.sum() - len(fixed)


def masked_lm(data, *flags):
    parser = options.get_training_parser()
    arguments = [
        str(data),
        "--task",
        "masked_lm",
        "--arch",
        "gau_masked_lm_tiny",
        "--criterion",
        "masked_lm",
        "--mask-whole-words",
        *flags,
    ]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
    return tasks.setup_task(config.task)


@pytest.mark.parametrize("mode", ["none", "eos"])
def test_masks_cover_whole_words(chinese, mode):
    folder = "fixed" if mode == "none" else "varied"
    task = masked_lm(
        chinese / folder / "data-bin",
        "--bpe",
        "marked_pieces",
        "--tokens-per-sample",
        "512",
        "--sample-break-mode",
        mode,
    )
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
        assert len(source) == 512 or mode == "eos" or index == len(dataset) - 1 or len(dataset) == 1
    assert longest > 0 and 0.05 < masked / total < 0.3


def test_whole_words_without_their_beginnings_are_an_error(chinese):
    task = masked_lm(chinese / "fixed" / "data-bin")
    with pytest.raises(UsageError, match="--mask-whole-words: needs --bpe"):
        task.load_dataset("valid")


def test_training_goes_through_the_real_command(chinese_model):
    log = (chinese_model / "train.log").read_text()
    assert "num_updates: 10 >= max_update: 10" in log and "'_name': 'marked_pieces'}" in log
    assert re.search(r"valid on 'valid' subset \| .*\| accuracy [0-9.]+ \|", log)
    assert (chinese_model / "checkpoint_best.pt").exists()
    text = read_model_folder(str(chinese_model / "model")).text
    assert text == Text(subwords="marked-pieces", subword_file="codes", lowercase=True)


def test_preparing_again_repeats_nothing(chinese, tmp_path):
    again = bash(
        RECIPE / "prepare.sh",
        chinese / "text",
        chinese / "fixed",
        "--segmented",
        "--bpe-operations",
        "30",
        "--workers",
        "1",
        cwd=tmp_path,
    )
    assert again.returncode == 0 and again.stderr.count("already done") == 9
    assert "\n+ " not in again.stderr and os.listdir(tmp_path) == []


@pytest.mark.skipif(not (SHARED / "data" / "zh_web").exists(), reason="no real data here")
def test_real_web_text_keeps_every_character(tmp_path):
    cut = ["--segmented"]
    try:
        import jieba  # noqa: F401

        cut = []
    except ImportError:
        pass
    lines = (SHARED / "data" / "zh_web" / "CLUECorpusSmall_sampled.txt").read_text(encoding="utf-8")
    source = write(tmp_path / "in", lines.split("\n")[:100])
    pieces.main(["segment", *cut, source, str(tmp_path / "words")])
    pieces.main(["latin", str(tmp_path / "words"), str(tmp_path / "latin")])
    codes = str(tmp_path / "codes")
    subprocess.run(
        [
            sys.executable,
            str(COMMON / "bpe.py"),
            "learn",
            "--operations",
            "50",
            codes,
            str(tmp_path / "latin"),
        ],
        check=True,
        capture_output=True,
    )
    pieces.main(["split", codes, str(tmp_path / "words"), str(tmp_path / "symbols")])
    found = (tmp_path / "symbols").read_text(encoding="utf-8").split("\n")
    for line, symbols in zip(lines.split("\n")[:100], found):
        plain = "".join(s[2:] if len(s) > 2 and s[:2] == "##" else s for s in symbols.split())
        assert plain == "".join(line.lower().split())


# --- what the scripts would run


def training(cwd, *arguments):
    result = bash(RECIPE / "train.sh", *arguments, "--dry-run", cwd=cwd)
    return flags_of(training_of(commands(result)))


@pytest.mark.parametrize("model", ["roformer", "roformer_v2", "gau"])
def test_training_is_the_papers(tmp_path, model):
    flags = training(tmp_path, model, "data", "--gpus", "1")
    expected = {
        "--arch": f"{model}_masked_lm_base",
        "--task": "masked_lm",
        "--tokens-per-sample": "512",
        "--sample-break-mode": "none",
        "--bpe": "marked_pieces",
        "--mask-whole-words": None,
        "--batch-size": "64",
        "--update-freq": "4",
        "--max-update": "100000",
        "--total-num-update": "100000",
        "--warmup-updates": "10000",
        "--lr": "3e-4",
        "--lr-scheduler": "polynomial_decay",
        "--adam-eps": "1e-6",
        "--adam-betas": "(0.9, 0.999)",
        "--weight-decay": "0.01",
        "--dropout": "0.1",
        "--attention-dropout": "0.1",
        "--save-dir": f"runs/clue_pretraining/{model}",
    }
    assert {name: flags.get(name, "absent") for name in expected} == expected
    assert flags["--arch"] in ARCH_CONFIG_REGISTRY and os.listdir(tmp_path) == []


def test_flags_after_the_dashes_win_and_the_data_say_the_lengths(tmp_path, chinese):
    data = chinese / "varied" / "data-bin"
    result = bash(
        RECIPE / "train.sh",
        "gau",
        data,
        "--cpu",
        "--updates",
        "30",
        "--dry-run",
        "--",
        "--lr",
        "1e-3",
        cwd=tmp_path,
    )
    flags = flags_of(training_of(commands(result)))
    assert flags["--lr"] == "1e-3" and flags["--sample-break-mode"] == "eos"
    assert flags["--warmup-updates"] == "3" and flags["--max-update"] == "30"


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (["gau"], ["--help"]),
        (["bert", "data", "--cpu"], ["bert: unknown model", "roformer_v2"]),
        (["gau", "data", "more"], ["more", "after --"]),
        (["gau", "data", "--lr", "1"], ["--lr", "after --"]),
        (["gau", "data", "--cpu"], ["data", "prepare.sh"]),
        (["gau", "data", "--updates", "1e6"], ["--updates 1e6"]),
        (["gau", "data", "--dry-run", "--gpus", "3"], ["--batch 256", "3 GPUs"]),
    ],
)
def test_training_mistakes_are_one_line(tmp_path, arguments, parts):
    assert_error(bash(RECIPE / "train.sh", *arguments, cwd=tmp_path), *parts)
    assert os.listdir(tmp_path) == []


def test_other_mistakes_are_one_line(tmp_path):
    prepare = RECIPE / "prepare.sh"
    assert_error(bash(prepare, "text", cwd=tmp_path), "--help")
    assert_error(bash(prepare, "text", "out", cwd=tmp_path), "text/train.txt: no such file")
    assert_error(bash(prepare, "text", "out", "--lengths", "9", cwd=tmp_path), "--lengths 9")
    assert_error(bash(prepare, "text", "out", "--symbols", "0", cwd=tmp_path), "--symbols 0")
    assert_error(bash(RECIPE / "train.sbatch", "gau", "data", cwd=tmp_path), "sbatch")
    assert os.listdir(tmp_path) == []


def test_a_slurm_job_starts_the_training_on_every_node(tmp_path):
    printed = commands(bash(RECIPE / "train.sbatch", "gau", "data", "--dry-run", cwd=tmp_path))
    (command,) = printed
    assert command[0] == "srun" and str(RECIPE / "train.sh") in command
    assert command[-3:] == ["gau", "data", "--dry-run"] and "--slurm" in command
