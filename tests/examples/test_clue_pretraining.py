"""Chinese pre-training recipe: marked symbols, whole-word masks, the command."""

import re
from argparse import Namespace

import pytest
from fairseq import options, tasks
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.utils import import_user_module
from support.pretraining import CHINESE, MARKED, UNITS
from support.recipes import bash, succeed, write

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.subwords import KINDS

pytest_plugins = ["support.pretraining"]


def test_the_dictionary_has_both_forms(chinese):
    data = chinese / "512" / "data-bin"
    symbols = Dictionary.load(str(data / "dict.txt")).symbols
    assert {"中", "##国", "天", "##天", "。"} < set(symbols)
    assert not any(re.search("[A-Z]", symbol) for symbol in symbols if symbol[0] != "<")
    again = succeed(CHINESE / "prepare.sh", "text", "512", cwd=chinese, **MARKED)
    assert again.stdout == "512/data-bin is there\n"


def test_documents_of_varied_length_are_lines_that_fit(chinese):
    fixed, varied = (
        data_utils.load_indexed_dataset(str(chinese / name / "data-bin" / "train"))
        for name in ("512", "diff")
    )
    assert len(fixed) == 30 and max(fixed.sizes) > 511
    assert len(varied) > 30 and max(varied.sizes) <= 511
    # the same symbols; a cut adds an end of line and nothing else
    assert varied.sizes.sum() - len(varied) == fixed.sizes.sum() - len(fixed)


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
    made = (tmp_path / "out" / "symbols" / "valid").read_text()
    assert made == expected + "\n"
    kind, file = ("pieces", "bpe.codes") if level == "piece" else ("words", "words.txt")
    subwords = KINDS[f"marked-{kind}"](str(tmp_path / "out" / "data-bin" / file))
    assert subwords.split("中国 iphone 3.5%") == expected.split()  # as model folders do


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


def test_whole_words_without_their_beginnings_are_an_error(chinese):
    task = masked_lm(chinese / "512" / "data-bin")
    with pytest.raises(UsageError, match="--mask-whole-words: needs --bpe"):
        task.load_dataset("valid")


def test_training_goes_through_the_real_command(chinese, tmp_path):
    given = ("gau_masked_lm_tiny", chinese / "512" / "data-bin", "run", *UNITS)
    short = ("--tokens-per-sample", "64", "--batch-size", "2", "--update-freq", "2")
    succeed(CHINESE / "train.sh", *given, *short, cwd=tmp_path, UPDATES="10", PRECISION="")
    log = (tmp_path / "run" / "train.log").read_text()
    assert "num_updates: 10 >= max_update: 10" in log and "'_name': 'marked_pieces'}" in log
    assert re.search(r"valid on 'valid' subset \| .*\| accuracy [0-9.]+ \|", log)


def test_mistakes_are_one_line(tmp_path):
    write(tmp_path / "train.txt", ["a"])
    for variables, message in (
        ({}, "./valid.txt: No such file or directory"),
        ({"LEVEL": "pieces"}, "LEVEL=pieces: expected piece, word or character"),
    ):
        if variables:
            write(tmp_path / "valid.txt", ["a"])
        refused = bash(CHINESE / "prepare.sh", ".", "out", cwd=tmp_path, **MARKED, **variables)
        assert refused.returncode == 1 and refused.stderr.count("\n") == 1
        assert message in refused.stderr
