"""Chinese pre-training recipe: the whole chain, whole-word masks, what would run."""

import os
import re
from argparse import Namespace

import pytest
from fairseq import options, tasks
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.utils import import_user_module
from support.chinese import RECIPE
from support.recipes import check_flags, succeed, trainings

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.model_folder import read_model_folder
from fairseq_posenc.serving.preparation import Text

pytest_plugins = ["support.chinese"]

KINDS = ("fixed", "varied")  # samples of 512 tokens, and documents


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
        for name in KINDS
    )
    assert len(fixed) == 30 and max(fixed.sizes) > 511
    assert len(varied) > 30 and max(varied.sizes) <= 511
    dictionaries = [(chinese / name / "data-bin/dict.txt").read_bytes() for name in KINDS]
    assert dictionaries[0] == dictionaries[1]  # fine-tuning on one task reads either model
    # the same symbols; a cut adds an end of line and nothing else
    assert varied.sizes.sum() - len(varied) == fixed.sizes.sum() - len(fixed)


def masked_lm(data, *flags):
    import_user_module(Namespace(user_dir=str(RECIPE / "whole_words")))
    parser = options.get_training_parser()
    names = "--task masked_lm --arch gau_masked_lm_tiny --criterion masked_lm --mask-whole-words"
    arguments = [str(data), *names.split(), *flags]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
    return tasks.setup_task(config.task)


@pytest.mark.parametrize("mode", ["none", "eos"])
def test_masks_cover_whole_words(chinese, mode):
    folder = "fixed" if mode == "none" else "varied"
    data = chinese / folder / "data-bin"
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
    given = (chinese / "text", chinese / "fixed", "--segmented", "--bpe-operations", "30")
    again = succeed(RECIPE / "prepare.sh", *given, "--workers", "1", cwd=tmp_path)
    assert again.stderr.count("already done") == 6
    assert "\n+ " not in again.stderr and os.listdir(tmp_path) == []


def training(cwd, *arguments):
    (flags,) = trainings(RECIPE / "train.sh", *arguments, cwd=cwd)
    return flags


@pytest.mark.parametrize("model", ["roformer", "roformer_v2", "gau"])
def test_training_is_the_papers(tmp_path, model):
    flags = training(tmp_path, model, "data", "--gpus", "1")
    check_flags(
        flags,
        f"--arch {model}_masked_lm_base --task masked_lm --tokens-per-sample 512 "
        "--sample-break-mode none --bpe marked_pieces --mask-whole-words --batch-size 64 "
        "--update-freq 4 --max-update 100000 --total-num-update 100000 --warmup-updates 10000 "
        "--lr 3e-4 --lr-scheduler polynomial_decay --adam-eps 1e-6 --adam-betas '(0.9, 0.999)' "
        "--weight-decay 0.01 --dropout 0.1 --attention-dropout 0.1 "
        f"--save-dir runs/clue_pretraining/{model}",
    )
    assert flags["--arch"] in ARCH_CONFIG_REGISTRY and os.listdir(tmp_path) == []


def test_flags_after_the_dashes_win_and_the_data_say_the_lengths(tmp_path, chinese):
    data = chinese / "varied" / "data-bin"
    given = ("gau", data, "--cpu", "--updates", "30", "--", "--lr", "1e-3")
    flags = training(tmp_path, *given)
    assert flags["--lr"] == "1e-3" and flags["--sample-break-mode"] == "eos"
    assert flags["--warmup-updates"] == "3" and flags["--max-update"] == "30"
