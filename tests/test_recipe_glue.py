"""GLUE recipe: the original files, the whole chain on made-up tasks, tables, mistakes."""

import csv
import json
import os
import random
import re

import pytest
from conftest import SHARED
from pretraining import sentence
from recipes import EXAMPLES, assert_error, bash, commands, flags_of, recipe_module

pytest_plugins = ["pretraining"]
RECIPE = EXAMPLES / "glue"
PREPARE, FINETUNE = RECIPE / "prepare.sh", RECIPE / "finetune.sh"

TASKS = recipe_module("common", "tasks").read_table(str(RECIPE / "tasks.yaml"))
files = recipe_module("common", "task_files")

# columns of the training files, as in GLUE's archives
HEADERS = {
    "SST-2": "sentence label",
    "MRPC": "Quality|#1 ID|#2 ID|#1 String|#2 String",
    "STS-B": "index genre filename year old_index source1 source2 sentence1 sentence2 score",
    "QQP": "id qid1 qid2 question1 question2 is_duplicate",
    "MNLI": "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
    "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label",
    "QNLI": "index question sentence label",
    "RTE": "index sentence1 sentence2 label",
}
HEADERS = {task: re.split(r"\|" if "|" in names else " ", names) for task, names in HEADERS.items()}
LABELS = {
    "MNLI": ["entailment", "neutral", "contradiction"],
    "QNLI": ["entailment", "not_entailment"],
    "RTE": ["entailment", "not_entailment"],
    "STS-B": ["0.000", "2.750", "5.000", "4.2"],
}


def row(task, number, one, two, label):
    """A line of a task's file, and of CoLA's too, which has no header."""
    cells = {"sentence": one, "sentence1": one, "question": one, "#1 String": one}
    cells.update({"question1": one, "sentence2": two, "question2": two, "#2 String": two})
    if task == "QNLI":
        cells["sentence"] = two
    cells.update(dict.fromkeys(("label", "Quality", "score", "is_duplicate", "gold_label"), label))
    if task == "CoLA":
        return f"gj04\t{label}\t{'' if label == '1' else '*'}\t{one}"
    return "\t".join(cells.get(name, f"{name}{number}") for name in HEADERS[task])


def made_up(folder, task, sizes):
    """Write the files of a task; returns its examples by file name."""
    draw, examples = random.Random(task), {}
    (folder / task).mkdir(parents=True)
    for name, size in sizes.items():
        kinds = LABELS.get(task, ["0", "1"])
        pairs = [(sentence(draw), sentence(draw)) for _ in range(size)]
        # the label follows from the first sentence, so it can be learned
        examples[name] = [(*pair, kinds[pair[0].count("s") % len(kinds)]) for pair in pairs]
        lines = [] if task == "CoLA" else ["\t".join(HEADERS[task])]
        lines += [row(task, i, *example) for i, example in enumerate(examples[name])]
        (folder / task / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return examples


# --- reading


def read(task, path):
    return [[*e.texts, e.label] for e in files.examples(TASKS[task], str(path))]


@pytest.mark.parametrize("task", sorted(TASKS))
def test_sentences_and_labels_of_every_layout(tmp_path, task):
    wanted = made_up(tmp_path, task, {"train": 7})["train"]
    single = task in ("CoLA", "SST-2")
    found = read(task, tmp_path / task / "train.tsv")
    assert [example[:-1] for example in found] == [
        [one] if single else [one, two] for one, two, _ in wanted
    ]
    assert [e[-1] for e in found] == [label for _, _, label in wanted]


def test_quirks_of_the_real_files(tmp_path, capsys):
    path = tmp_path / "file.tsv"
    quoted = ['1\t2\t3\tWhat is "x?\tWhy "" y?\t1', "4\t5\t6\tcut short", "7\t8\t9\ta\u2028b\tc\t0"]
    path.write_bytes(("\ufeff" + "\r\n".join(["\t".join(HEADERS["QQP"]), *quoted])).encode())
    assert read("QQP", path) == [['What is "x?', 'Why "" y?', "1"], ["a\u2028b", "c", "0"]]
    assert "2 examples, 1 lines left out" in capsys.readouterr().err
    # what a reader that minds quotation marks would make of it: another number of examples
    with open(path, encoding="utf-8", newline="") as stream:
        assert len(list(csv.reader(stream, delimiter="\t", quotechar='"'))) == 4


def test_validation_files_of_mnli_have_more_columns(tmp_path):
    header = [*HEADERS["MNLI"][:-1], "label2", "label3", "label4", "label5", "gold_label"]
    cells = ["x"] * 8 + ["one", "two", "neutral", "a", "b", "c", "d"]
    lines = ["\t".join(header), "\t".join([*cells, "entailment"]), "\t".join([*cells, "-"])]
    path = tmp_path / "dev_matched.tsv"
    path.write_text("\n".join(lines) + "\n")
    assert read("MNLI", path) == [["one", "two", "entailment"]]


@pytest.mark.parametrize(
    "task, text, words",
    [
        ("RTE", "index\tsentence1\tsentence2\n1\ta\tb\n", "no column label, but index, sentence1"),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n", "no examples"),
        ("STS-B", "\t".join(HEADERS["STS-B"]) + "\n" + "\t".join("0123456xyz") + "\n", "'z'"),
        ("CoLA", "", "no examples"),
    ],
)
def test_a_file_of_another_layout_is_one_line(tmp_path, task, text, words):
    path = tmp_path / "train.tsv"
    path.write_text(text)
    table, out = str(RECIPE / "tasks.yaml"), str(tmp_path / "out")
    with pytest.raises(SystemExit, match=f"train.tsv: .*{words}"):
        files.main(["extract", table, task, str(tmp_path), out])
    assert not list((tmp_path / "out").glob("*/*"))


@pytest.mark.skipif(not (SHARED / "data" / "glue").exists(), reason="no real data here")
@pytest.mark.parametrize(
    "task, train, dev, positive",
    [("CoLA", 8551, 1043, 721), ("MRPC", 3668, 408, 279), ("SST-2", 67349, 872, 444)],
)
def test_real_files_have_their_published_sizes(task, train, dev, positive):
    folder = SHARED / "data" / "glue" / task
    assert len(read(task, folder / "train.tsv")) == train
    found = read(task, folder / "dev.tsv")
    assert len(found) == dev
    assert sum(example[-1] == "1" for example in found) == positive


# --- the whole chain


@pytest.fixture(scope="module")
def glue(prepared, tmp_path_factory):
    """Folder with made-up CoLA and STS-B, through prepare.sh into ``data``."""
    folder = tmp_path_factory.mktemp("glue")
    for task in ("CoLA", "STS-B"):
        made_up(folder / "raw", task, {"train": 40, "dev": 11})
    result = bash(
        PREPARE, "raw", prepared / "out" / "data-bin", "data", "--workers", "1", cwd=folder
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "CoLA/train.tsv: 40 examples, 0 lines left out" in result.stderr
    return folder


def test_texts_are_treated_like_those_of_the_pre_training(glue, prepared):
    dictionary = (prepared / "out" / "data-bin" / "dict.txt").read_text()
    for part in ("CoLA/input0", "STS-B/input0", "STS-B/input1"):
        assert (glue / "data" / part / "dict.txt").read_text() == dictionary
    text = (glue / "data" / "work" / "CoLA" / "pieces" / "input0" / "train").read_text()
    assert text == text.lower() and "@@" in text
    targets = (glue / "data" / "STS-B" / "label" / "valid.label").read_text().split()
    assert set(targets) <= {"0.0", "0.55", "1.0", "0.84"} and len(targets) == 11
    assert not (glue / "data" / "CoLA" / "input1").exists()


def finetune(glue, pretrained, task, *options):
    few = ("--lr", "5e-3", "--seeds", "3", "--epochs", "2", "--batch", "8", "--cpu")
    checkpoint = pretrained / "checkpoint_last.pt"
    return bash(
        FINETUNE,
        f"data/{task}",
        checkpoint,
        "runs",
        *few,
        *options,
        "--",
        "--num-workers",
        "0",
        cwd=glue,
    )


def test_fine_tuning_ends_with_the_table_and_goes_on_where_it_was(glue, pretrained):
    worse = glue / "runs" / "tupe_r" / "CoLA" / "lr1e-3-seed9"
    worse.mkdir(parents=True)
    (worse / "train.log").write_text('{"epoch": 1, "valid_mcc": "-99"}\n')
    (worse / "checkpoint_best.pt").touch()
    result = finetune(glue, pretrained, "CoLA", "--keep-checkpoints")
    assert result.returncode == 0, result.stderr[-3000:]
    table = result.stdout[result.stdout.index("| model |") :]
    assert table.startswith("| model | CoLA (mcc) | average |\n| --- |")
    # what the table says is in the logs, after the best of two epochs
    log = glue / "runs" / "tupe_r" / "CoLA" / "lr5e-3-batch8-seed3" / "train.log"
    found = dict(re.findall(r'"epoch": (\d).* "valid_mcc": "([-\d.]+)"', log.read_text()))
    assert sorted(found) == ["1", "2"]
    assert f"| {max(map(float, found.values())):.2f} |" in table
    assert "position encoding tupe+t5" in result.stdout  # from the checkpoint, nobody said so
    assert (log.parent / "checkpoint_best.pt").exists() and list(worse.glob("*.pt"))
    card = log.parents[1] / "model" / "README.md"
    assert f"mcc {max(map(float, found.values())):.2f} on the validation set" in card.read_text()
    again = finetune(glue, pretrained, "CoLA")
    assert again.stdout == table and "model: already done" in again.stderr
    assert (log.parent / "checkpoint_best.pt").exists() and not list(worse.glob("*.pt"))


@pytest.mark.slow
def test_every_task_is_prepared(prepared, tmp_path):
    for task, settings in TASKS.items():
        names = [name[: -len(".tsv")] for (name,) in settings.valid.values()]
        made_up(tmp_path / "raw", task, {"train": 12, **dict.fromkeys(names, 6)})
    result = bash(
        PREPARE, "raw", prepared / "out" / "data-bin", "data", "--workers", "1", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr[-3000:]
    for task, settings in TASKS.items():
        folder = tmp_path / "data" / task
        assert (folder / "examples").read_text().strip() == "12"
        inputs = sorted(path.name for path in folder.iterdir() if path.is_dir())
        assert inputs == [*settings.inputs, "label"]
    assert (tmp_path / "data" / "MNLI" / "input1" / "valid1.bin").exists()


# --- what would run


def runs_of(cwd, task, *options):
    result = bash(
        FINETUNE, f"glue/{task}", "models/mine/last.pt", "out", "--dry-run", *options, cwd=cwd
    )
    return [flags_of(command) for command in commands(result) if "fairseq-train" in command]


def test_the_sweep_is_the_papers(tmp_path):
    runs = runs_of(tmp_path, "CoLA")
    assert len(runs) == 20
    assert {(run["--lr"], run["--seed"]) for run in runs} == {
        (f"{rate}e-5", str(seed)) for rate in (2, 3, 4, 5) for seed in (1, 2, 3, 4, 5)
    }
    assert len({run["--save-dir"] for run in runs}) == 20
    expected = {
        "--arch": "posenc_masked_lm",
        "--init-token": "0",
        "--separator-token": "2",
        "--batch-size": "32",
        "--max-epoch": "10",
        "--best-checkpoint-metric": "mcc",
        "--num-classes": "2",
        "--required-batch-size-multiple": "1",
        "--distributed-world-size": "1",
        "--weight-decay": "0.01",
    }
    assert {name: runs[0].get(name) for name in expected} == expected
    assert os.listdir(tmp_path) == []


def test_the_sweep_of_roberta_is_that_of_table_10(tmp_path):
    runs = runs_of(tmp_path, "RTE", "--paper", "roberta", "--patience", "2")
    settings = {(run["--lr"], run["--batch-size"], run["--seed"]) for run in runs}
    assert settings == {
        (f"{rate}e-5", batch, str(seed))
        for rate in (1, 2, 3)
        for batch in ("16", "32")
        for seed in (1, 2, 3, 4, 5)
    }
    assert len({run["--save-dir"] for run in runs}) == len(runs) == 30
    expected = {
        "--max-epoch": "10",
        "--weight-decay": "0.1",
        "--adam-betas": "(0.9, 0.98)",
        "--adam-eps": "1e-6",
        "--clip-norm": "0.0",
        "--lr-scheduler": "polynomial_decay",
        "--patience": "2",
        "--best-checkpoint-metric": "accuracy",
    }
    assert {name: runs[0].get(name) for name in expected} == expected


def test_the_warm_up_is_6_percent_of_the_batches_own_updates(tmp_path):
    data = tmp_path / "glue" / "RTE"
    data.mkdir(parents=True)
    (data / "examples").write_text("2490\n")
    for run in runs_of(tmp_path, "RTE", "--paper", "roberta", "--seeds", "1", "--lr", "1e-5"):
        updates = {"16": 1560, "32": 780}[run["--batch-size"]]
        assert run["--total-num-update"] == str(updates)
        assert run["--warmup-updates"] == str(updates * 6 // 100)


def test_a_task_may_start_from_the_model_of_another(tmp_path):
    plain = runs_of(tmp_path, "RTE", "--seeds", "1", "--lr", "1e-5", "--batch", "16")
    (run,) = runs_of(
        tmp_path, "RTE", "--from", "MNLI", "--seeds", "1", "--lr", "1e-5", "--batch", "16"
    )
    assert run["--restore-file"] == f"{tmp_path}/out/mine/MNLI/model/checkpoint.pt"
    assert run["--classification-head-name"] == "head_of_RTE"
    assert run["--save-dir"] == f"{tmp_path}/out/mine-from-MNLI/RTE/lr1e-5-batch16-seed1"
    assert run["--save-dir"] != plain[0]["--save-dir"]


def test_folders_of_earlier_versions_are_continued(tmp_path):
    (tmp_path / "out" / "mine" / "RTE" / "lr1e-5-seed1").mkdir(parents=True)
    found = runs_of(tmp_path, "RTE", "--seeds", "1", "--lr", "1e-5", "--batch", "16 32")
    names = [os.path.basename(run["--save-dir"]) for run in found]
    assert names == ["lr1e-5-batch16-seed1", "lr1e-5-seed1"]


def test_models_of_an_ensemble_are_packed_and_submitted(tmp_path):
    few = ("--models", "2", "--seeds", "1 2 3", "--lr", "1e-5")
    given = ("glue/RTE", "models/mine/last.pt", "out", "--dry-run", *few)
    packs = [c[3] for c in commands(bash(FINETUNE, *given, cwd=tmp_path)) if c[1:2] == ["pack"]]
    assert packs == [f"{tmp_path}/out/mine/RTE/{name}" for name in ("model", "model-2")]
    (tmp_path / "glue" / "RTE" / "test").mkdir(parents=True)
    (tmp_path / "glue" / "RTE" / "test" / "RTE.tsv").touch()
    for folder in packs:
        os.makedirs(folder)
        open(os.path.join(folder, "model.json"), "w").close()
    submit = RECIPE / "submit.sh"
    result = bash(submit, "glue", "out/mine", "sent", "--dry-run", cwd=tmp_path)
    (predict,) = [flags_of(c) for c in commands(result) if c[1:2] == ["predict"]]
    assert [predict["--model"], predict["--ensemble"]] == packs


SUPERGLUE = recipe_module("common", "tasks").read_table(str(RECIPE / "superglue.yaml"))


@pytest.mark.parametrize(
    "task, record, expected",
    [
        ("BoolQ", {"question": "is it", "passage": "It is.", "label": True}, ["is it", "It is."]),
        ("CB", {"premise": "a", "hypothesis": "b", "label": "neutral"}, ["a", "b"]),
        ("RTE", {"premise": "a", "hypothesis": "b", "label": "entailment"}, ["a", "b"]),
        (
            "WiC",
            {"word": "bank", "sentence1": "The bank.", "sentence2": "A bank!", "label": False},
            ["bank: The bank.", "A bank!"],
        ),
    ],
)
def test_superglue_is_read_as_published(tmp_path, task, record, expected):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({**record, "idx": 7, "version": 1.1}) + "\n")
    (found,) = files.examples(SUPERGLUE[task], str(path))
    assert found.texts == expected and found.label == str(record["label"]).replace(
        "True", "true"
    ).replace("False", "false")
    (found,) = files.examples(SUPERGLUE[task], str(path), labelled=False)
    assert found.texts == expected and found.id == "7"


@pytest.mark.parametrize(
    "paper, task, epochs, score",
    [("tupe", "MRPC", "10", "accuracy"), ("tupe", "STS-B", "10", "pearson")]
    + [("tupe", name, "5", "accuracy") for name in ("MNLI", "QNLI", "QQP")]
    + [("roformer", name, "3", "f1") for name in ("MRPC", "QQP")]
    + [("roformer", "STS-B", "3", "spearman"), ("roformer", "MNLI", "3", "accuracy")]
    + [("roberta", "STS-B", "10", "pearson"), ("roberta", "MRPC", "10", "accuracy")],
)
def test_epochs_and_scores_of_the_papers(tmp_path, paper, task, epochs, score):
    runs = runs_of(tmp_path, task, "--paper", paper)
    assert len(runs) == {"tupe": 20, "roformer": 12, "roberta": 30}[paper]
    assert runs[0]["--max-epoch"] == epochs and runs[0]["--best-checkpoint-metric"] == score
    assert ("--regression-target" in runs[0]) == (task == "STS-B")
    assert runs[0].get("--valid-subset") == ("valid,valid1" if task == "MNLI" else None)


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (["glue/CoLA", "x.pt"], ["--help"]),
        (["glue/SST", "x.pt", "out"], ["glue/SST", "prepare.sh"]),
        (["glue/CoLA", "x.pt", "out"], ["glue/CoLA", "incomplete"]),
        (["glue/CoLA", "x.pt", "out", "--paper", "bert"], ["--paper bert"]),
        (["glue/CoLA", "x.pt", "out", "--lr", "fast"], ["--lr fast"]),
        (["glue/CoLA", "x.pt", "out", "--seeds", "0"], ["--seeds 0"]),
        (["glue/CoLA", "x.pt", "out", "--batch", "16 x"], ["--batch x"]),
        (["glue/CoLA", "x.pt", "out", "--models", "0"], ["--models 0"]),
        (["glue/CoLA", "x.pt", "out", "--patience", "no"], ["--patience no"]),
        (["glue/CoLA", "x.pt", "out", "--dry-run", "--from", "CoLA"], ["--from CoLA", "itself"]),
        (["glue/CoLA", "x.pt", "out", "--name", "a/b"], ["--name a/b"]),
        (["glue/CoLA", "x.pt", "out", "--name", ".."], ["--name .."]),
        (["glue/CoLA", "x.pt", "out", "--dropout", "0"], ["--dropout", "after --"]),
    ],
)
def test_fine_tuning_mistakes_are_one_line(tmp_path, arguments, parts):
    assert_error(bash(FINETUNE, *arguments, cwd=tmp_path), *parts)
    assert os.listdir(tmp_path) == []


def test_preparing_mistakes_are_one_line(tmp_path):
    (tmp_path / "raw" / "RTE").mkdir(parents=True)
    arguments = ("raw", "data-bin", "out")
    assert_error(bash(PREPARE, "raw", cwd=tmp_path), "give the folders")
    assert_error(bash(PREPARE, *arguments, cwd=tmp_path), "data-bin: no dict.txt")
    wrong = ("--tasks", "RTE rte")
    assert_error(bash(PREPARE, *arguments, *wrong, cwd=tmp_path), "--tasks rte", "QNLI")
    absent = ("--tasks", "CoLA")
    assert_error(bash(PREPARE, *arguments, *absent, cwd=tmp_path), "raw/CoLA")
    assert_error(bash(PREPARE, "data-bin", *arguments[1:], cwd=tmp_path), "no folder of a task")
    assert os.listdir(tmp_path) == ["raw"]
