"""Pre-training recipe: the whole chain on a made-up corpus and what would run."""

import os
import re
import shutil

import pytest
from fairseq.data import Dictionary, data_utils
from fairseq.models import ARCH_CONFIG_REGISTRY
from support.commands import Command
from support.pretraining import RECIPE
from support.recipes import bash, check_flags, commands, succeed, trainings

from fairseq_posenc.serving.model_folder import read_model_folder
from fairseq_posenc.serving.preparation import Text

pytest_plugins = ["support.pretraining"]

MODELS = "bert_a bert_r tupe_a tupe_r tupe_a_tie_cls bert_ad roformer shaw roberta".split()


def test_the_data_hold_every_document_and_what_fine_tuning_needs(prepared):
    data = prepared / "out" / "data-bin"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    lines = data_utils.load_indexed_dataset(str(data / "train"), dictionary)
    lengths = [len(line) for line in lines]
    assert lengths.count(1) == 19  # a lone </s> between 20 documents
    assert max(lengths) == 31  # 30 tokens and </s>
    texts = [dictionary.string(line).replace("@@ ", "") for line in lines]
    original = (prepared / "text" / "train.txt").read_text(encoding="utf-8").lower()
    assert len(" ".join(texts).split(".")) == len(original.split("."))
    assert any("the cat isn &apos;t" in text for text in texts)
    assert (data / "bpe.codes").read_text().startswith("#version")
    assert (data / "text").read_text() == "lang en\nkeep-case \nsubwords subword-nmt\n"


def test_training_keeps_every_tenth_and_the_last_checkpoint(pretrained):
    names = {path.name for path in pretrained.glob("*.pt")}
    updates = {int(n) for n in re.findall(r"checkpoint_\d+_(\d+)\.pt", " ".join(names))}
    assert set(range(2, 21, 2)) <= updates and len(updates) <= 11
    assert {"checkpoint_last.pt", "checkpoint_best.pt"} < names
    log = (pretrained / "train.log").read_text()
    assert "num_updates=20, lr=0" in log  # linear decay to zero
    folder = read_model_folder(str(pretrained / "model"))
    expected = Text("en", None, "moses", False, "subword-nmt", "codes", lowercase=True)
    assert (folder.task, folder.text) == ("masked_lm", expected)


def test_the_plot_of_two_runs_reads_their_logs(pretrained, tmp_path):
    pytest.importorskip("matplotlib")
    shutil.copytree(pretrained, tmp_path / "other", ignore=shutil.ignore_patterns("*.pt"))
    logs = [str(pretrained / "train.log"), str(tmp_path / "other" / "train.log")]
    output = tmp_path / "curves.png"
    flags = ["plot", "training", "--output", output, "--labels", "one", "two", "--", *logs]
    plotted = Command("fairseq_posenc", flags).finish()
    assert plotted.status == 0, plotted.err
    assert output.read_bytes()[:4] == b"\x89PNG"


def test_preparing_again_repeats_nothing_and_a_dry_run_prints_everything(prepared, tmp_path):
    text, options = prepared / "text", ("--bpe-operations", "40", "--max-line", "30")
    given = (text, prepared / "out", *options, "--workers", "1")
    again = succeed(RECIPE / "prepare.sh", *given, cwd=tmp_path)
    assert again.stderr.count("already done") == 7
    assert "\n+ " not in again.stderr
    dry = bash(RECIPE / "prepare.sh", text, "new", *options, "--dry-run", cwd=tmp_path)
    assert len(commands(dry)) == (prepared / "messages").read_text().count("\n+ ")
    assert os.listdir(tmp_path) == []


def training(cwd, *arguments):
    (flags,) = trainings(RECIPE / "train.sh", *arguments, cwd=cwd)
    return flags


def test_training_is_the_papers(tmp_path):
    flags = training(tmp_path, "tupe_a", "data", "--gpus", "8")
    check_flags(
        flags,
        "--arch tupe_a_masked_lm_base --task masked_lm --sample-break-mode complete "
        "--tokens-per-sample 512 --max-update 1000000 --total-num-update 1000000 "
        "--warmup-updates 10000 --lr 1e-4 --adam-eps 1e-6 --adam-betas '(0.9, 0.999)' "
        "--weight-decay 0.01 --clip-norm 1.0 --dropout 0.1 --mask-prob 0.15 "
        "--keep-interval-updates-pattern 100000 --required-batch-size-multiple 1",
    )
    assert os.listdir(tmp_path) == []


# RoBERTa Tables 9 and 3: samples, updates, warm-up, learning rate, beta 2; no clipping. Of Table 3,
# warm-up and beta 2 are ours.
ROBERTA = {
    ("roberta", "base"): (8192, 500_000, 24_000, "6e-4", "0.98"),
    ("roberta", "large"): (8192, 500_000, 30_000, "4e-4", "0.98"),
    ("roberta-256", "base"): (256, 1_000_000, 10_000, "1e-4", "0.999"),
    ("roberta-2k", "base"): (2048, 125_000, 6_000, "7e-4", "0.98"),
    ("roberta-8k", "base"): (8192, 31_250, 1_500, "1e-3", "0.98"),
}


@pytest.mark.parametrize("paper, size", ROBERTA)
def test_pre_training_as_roberta(tmp_path, paper, size):
    batch, updates, warmup, rate, beta = ROBERTA[paper, size]
    nodes = {"base": "1", "large": "128"}[size]
    several = ("--nodes", nodes, "--node-rank", "0", "--init-method", "tcp://first:1")
    given = ("roformer", "d", "--paper", paper, "--size", size, "--gpus", "8", *several)
    flags = training(tmp_path, *given)
    shape = (flags.get("--encoder-layers"), flags.get("--encoder-embed-dim"))
    assert shape == ((None, None) if size == "base" else ("24", "1024"))
    check_flags(
        flags,
        f"--arch roformer_masked_lm_base --max-update {updates} --total-num-update {updates} "
        f"--warmup-updates {warmup} --lr {rate} --lr-scheduler polynomial_decay "
        f"--adam-betas '(0.9, {beta})' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 0.0 "
        "--dropout 0.1 --attention-dropout 0.1",
    )
    share = int(flags["--batch-size"]) * int(flags["--update-freq"])
    assert share * int(flags["--distributed-world-size"]) == batch
    assert flags["--save-dir"].endswith(f"roformer-{paper}{'-large' * (size == 'large')}")


def test_roberta_is_bert_with_settings_of_its_own(tmp_path):
    flags = training(tmp_path, "roberta", "d", "--gpus", "8", "--updates", "100000")
    assert flags["--arch"] == "bert_a_masked_lm_base" and flags["--lr"] == "6e-4"
    assert flags["--warmup-updates"] == "4800" and flags["--save-dir"].endswith("/roberta")


def test_amos_needs_no_decay(tmp_path):
    given = ("roformer", "data", "--cpu", "--optimizer", "amos", "--updates", "250000")
    flags = training(tmp_path, *given)
    assert flags["--optimizer"] == "amos" and flags["--lr-scheduler"] == "fixed"
    assert float(flags["--lr"]) == 250000**-0.5 and flags["--warmup-updates"] == "2500"
    assert not any(flag.startswith("--adam") or "decay" in flag for flag in flags)
    assert flags["--save-dir"].endswith("roformer-amos")


@pytest.mark.parametrize(
    "name, expected",
    [
        ("segment-pair", "--pairs nsp --batch-size 32"),
        ("sentence-pair", "--pairs nsp --unit sentence --max-tokens 3072"),
        ("full-sentences", "--sample-break-mode complete --batch-size 32"),
        ("doc-sentences", "--sample-break-mode complete_doc --max-tokens 3072"),
    ],
)
def test_every_format_has_as_many_tokens_in_a_batch(tmp_path, name, expected):
    given = ("bert_a", "data", "--cpu", "--format", name, "--static-masks", "10")
    flags = training(tmp_path, *given, "--", "--tokens-per-sample", "96")
    check_flags(flags, expected)
    assert ("--unit" in flags) == (name == "sentence-pair")
    assert flags["--task"] == flags["--criterion"] == "masked_lm_pairs"
    assert flags["--static-masks"] == "10" and not {"--batch-size", "--max-tokens"} <= set(flags)
    assert ("--num-segments" in flags) == name.endswith("pair")
    where = "bert_a-static10" if name == "full-sentences" else f"bert_a-{name}-static10"
    assert flags["--save-dir"].endswith(where)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_an_architecture(tmp_path, model):
    assert training(tmp_path, model, "data", "--cpu")["--arch"] in ARCH_CONFIG_REGISTRY


@pytest.mark.parametrize("nodes, gpus, limit", [(1, 1, 32), (1, 8, 32), (2, 8, 7), (4, 4, 256)])
def test_an_update_has_256_samples_whatever_the_machine(tmp_path, nodes, gpus, limit):
    several = ("--nodes", str(nodes), "--node-rank", "0", "--init-method", "tcp://first:1")
    machine = ("--gpus", str(gpus), *several, "--samples-per-gpu", str(limit))
    flags = training(tmp_path, "bert_a", "data", *machine)
    share, passes = int(flags["--batch-size"]), int(flags["--update-freq"])
    assert share <= limit and nodes * gpus * share * passes == 256
    assert flags["--distributed-world-size"] == str(nodes * gpus)
