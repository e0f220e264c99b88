"""The recipes of studies: what they read from logs and answers, and by fairseq itself."""

import json

import pytest
import yaml
from support.commands import succeed
from support.studies import CPU, forked, message, study

from fairseq_posenc.steps.training import is_over
from fairseq_posenc.study.checks import check_plan
from fairseq_posenc.study.logs import last_losses, lines_of, read_training
from fairseq_posenc.study.plan import Plan, read_plan
from fairseq_posenc.study.recipes import documents, language_model, masked_lm, translation
from fairseq_posenc.study.recipes.base import flags_of_model
from fairseq_posenc.study.results import load_results
from fairseq_posenc.study.runs import specs
from fairseq_posenc.text.preparation import Text

pytest_plugins = ["support.toy"]


LOSS = "Loss (base 2): 3.0000, Perplexity: 8.00"


def test_an_interrupted_training_counts_once(tmp_path):
    start = "num. shared model params: 1,000 (num. trained: 1,000)\n"
    lines = [
        start,
        "total memory = 79.109 GB ; name = GPU\n",
        '{"epoch": 1, "loss": "9.0", "num_updates": "2", "gb_free": "77.1"}\n',
        '{"epoch": 1, "valid_loss": "8.5", "valid_num_updates": "4"}\n',
        '{"epoch": 1, "train_wpb": "10.5", "train_num_updates": "4", "train_train_wall": "3"}\n',
        '{"epoch": 2, "loss": "8.0", "num_updates": "6", "gb_free": "76.0"}\n',
        "Traceback\n",
        start,
        '{"epoch": 2, "loss": "8.0", "num_updates": "6", "gb_free": "76.2"}\n',
        '{"epoch": 2, "valid_loss": "7.5", "valid_num_updates": "8"}\n',
        '{"epoch": 2, "train_wpb": "11", "train_num_updates": "8", "train_train_wall": "4"}\n',
    ]
    log = tmp_path / "train.log"
    log.write_text("".join(lines))
    found = read_training(tmp_path)
    assert found == {
        "parameters": 1000,
        "trained": 1000,
        "updates": 8,
        "tokens": 4 * 10.5 + 4 * 11,
        "seconds": {"train": 7},
        "curve": [
            {"update": 2, "train_loss": 9.0},
            {"update": 4, "valid_loss": 8.5},
            {"update": 6, "train_loss": 8.0},
            {"update": 8, "valid_loss": 7.5},
        ],
        "peak_memory_mb": round(3.109 * 1024),
    }
    assert not is_over(log)
    log.write_text(log.read_text() + "done training in 3.0 seconds\n")
    assert is_over(log)
    log.write_text(log.read_text() + start)
    assert not is_over(log)
    log.write_text(start)
    assert "train.log: is incomplete" in message(read_training, tmp_path)


def test_losses_are_read_from_either_command(tmp_path):
    log = tmp_path / "log"
    log.write_text(f"x | INFO | {LOSS}\n")
    assert last_losses(log) == {"loss": 3.0, "perplexity": 8.0}
    log.write_text('x {"valid_loss": "4", "valid_nll_loss": "3", "valid_accuracy": "12.5"}\n')
    assert last_losses(log) == {"loss": 4.0, "perplexity": 8.0, "accuracy": 12.5}
    log.write_text('x {"test_loss": "3"}\n')
    assert last_losses(log, "test") == {"loss": 3.0, "perplexity": 8.0}
    assert "has no loss" in message(last_losses, log)


def test_only_line_feeds_end_a_line(tmp_path):
    text = tmp_path / "text"
    text.write_text("a\u2028b\x85c\n\nd\n\n")
    assert lines_of(text) == ["a\u2028b\x85c", "", "d", ""]
    text.write_text("")
    assert lines_of(text) == lines_of(tmp_path / "none") == []


def test_hypotheses_are_put_in_order(tmp_path):
    generated = tmp_path / "generated"
    generated.write_text("H-1\t-1\tc d\nH-0\t-1\ta b\nH-0\t-2\tother\nH-2\t-1\t\n")
    assert translation.read_hypotheses(generated) == [["a", "b"], ["c", "d"], []]
    generated.write_text("H-2\t-1\tc\nH-0\t-1\ta\n")
    assert "no hypothesis for sentence 1" in message(translation.read_hypotheses, generated)
    assert "no hypothesis for sentence 0" in message(translation.read_hypotheses, tmp_path / "no")


def test_the_learning_rate_with_the_best_answers_counts(tmp_path):
    task = masked_lm.Task("SST-2", "x", ("0", "1"), ("accuracy", "f1"), "1", {}, 9)
    (tmp_path / "a.tsv").write_text("1\t0\n0\t0\n1\t1\n1\t1\n")
    (tmp_path / "b.tsv").write_text("1\t0\n0\t1\n1\t1\n1\t1\n")
    found = masked_lm.score_task(tmp_path, task, ("b", "a"))
    assert found["scores"] == {"sst2_accuracy": 75.0, "sst2_f1": 80.0}
    (name,) = found["files"]["answers"].values()
    assert (tmp_path / name).read_text() == (tmp_path / "a.tsv").read_text()
    numbers = masked_lm.Task("STS-B", "x", (), ("pearson",), "1", {}, 9)
    (tmp_path / "c.tsv").write_text("0.0\t0.1\n0.5\t0.6\n1.0\t1.1\n")
    assert masked_lm.score_task(tmp_path, numbers, ("c",))["scores"] == {"stsb_pearson": 100.0}


def test_the_curve_of_extrapolation(tmp_path):
    (tmp_path / "extrapolation.csv").write_text("name,length,perplexity\nx,16,9.5\nx,32,11\n")
    assert language_model.read_curve(tmp_path) == {"extrapolation": {"16": 9.5, "32": 11.0}}


def test_a_language_model_with_memory_is_scored_with_it(tmp_path):
    content = {
        "name": "language",
        "recipe": "language_model",
        "data": "text",
        "base": {"--arch": "posenc_lm", "--tokens-per-sample": 32},
        "systems": {
            "blocks": {"--position-encoding": "rotary"},
            "memory": {"--task": "language_modeling_with_memory", "--memory-length": 32},
        },
        "seeds": [1],
        "budget": {"updates": 4},
        "subset": ["test", "valid"],
    }
    plan = read_plan(content, "plan")
    assert list(language_model.measures(plan))[:3] == ["perplexity", "loss", "perplexity_valid"]
    blocks, memory = (spec.steps for spec in specs(plan, {}))
    names = ["train", "evaluate", "evaluate_valid"]
    assert [step.name for step in memory] == [step.name for step in blocks] == names
    assert (
        memory[0].words.count("--task") == 1 and "language_modeling_with_memory" in memory[0].words
    )
    assert "language_modeling" in blocks[0].words
    assert (memory[1].words[0], blocks[1].words[0]) == ("fairseq-validate", "fairseq-eval-lm")
    for step, line in ((memory[1], '{"test_loss": "3"}'), (blocks[1], LOSS)):
        (tmp_path / "evaluate.log").write_text(f"{line}\n")
        assert step.collect(tmp_path) == {"scores": {"loss": 3.0, "perplexity": 8.0}}
    (tmp_path / "evaluate_valid.log").write_text(f"{LOSS}\n")
    found = {"loss_valid": 3.0, "perplexity_valid": 8.0}
    assert blocks[2].collect(tmp_path) == {"scores": found}


def test_a_search_of_language_models_reads_the_validation_set(tmp_path):
    plan = {
        "name": "x",
        **{"recipe": "language_model", "data": str(tmp_path), "seeds": [1]},
        "base": {"--arch": "posenc_lm", "--tokens-per-sample": 32},
        "systems": {"rotary": {}},
        "budget": {"updates": 5},
        "subset": ["test", "valid"],
    }
    labels = [one.label for one in language_model.measures(read_plan(plan, "plan")).values()]
    assert labels == ["perplexity, test", "loss, test", "perplexity, valid", "loss, valid"]
    plan["search"] = {"--lr": ["1", "2"]}
    said = message(language_model.check, read_plan(plan, "plan"))
    assert said == "subset: test: a search chooses by the loss on valid; put valid first"
    plan["systems"]["rotary"] = {"--tokens-per-sample": False}
    said = message(language_model.check, read_plan(plan, "plan"))
    assert said.startswith("systems: rotary: --tokens-per-sample nothing: expected a whole number")


def test_fine_tuning_takes_the_shape_from_the_checkpoint_where_it_can():
    flags = {"--encoder-layers": "2", "--lr": "1"}
    assert flags_of_model({"--arch": "roformer_masked_lm_tiny", **flags}) == {
        "--arch": "posenc_masked_lm"
    }
    stock = flags_of_model({"--arch": "roberta", **flags})
    assert stock == {"--arch": "roberta", "--encoder-layers": "2"}


@pytest.fixture
def texts(toy, tmp_path):
    """Folders with a text, and with a task on its sentences."""
    parts = [f for n in ("train", "valid") for f in (f"--{n}pref", tmp_path / n)]

    def binarise(folder, make, *flags):
        for name in ("train", "valid"):
            lines = (toy.text / f"{name}.src").read_text().splitlines()
            (tmp_path / name).write_text("".join(f"{make(line)}\n" for line in lines))
        succeed("preprocess", "--only-source", *parts, "--destdir", folder, *flags)

    task = tmp_path / "tasks" / "Length"
    binarise(tmp_path / "text", str)
    binarise(task / "input0", str, "--srcdict", tmp_path / "text" / "dict.txt")
    binarise(task / "label", lambda line: "long" if len(line.split()) > 5 else "short")
    about = {"labels": ["long", "short"], "scores": ["accuracy", "f1"], "positive": "long"}
    about.update(train="train.tsv", valid="valid.tsv", text="sentence", label="length")
    (task / "task.yaml").write_text(yaml.safe_dump({"Length": {**about, "epochs": 1}}))
    (task / "examples").write_text("60\n")
    return tmp_path


SHARED = "--optimizer adam --lr 0.01 --tokens-per-sample 32 --batch-size 8 --log-interval 1 "


@pytest.mark.slow
def test_a_study_of_masked_language_models(texts):
    shape = "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    content = {
        "name": "masked",
        "recipe": "masked_lm",
        "data": str(texts / "text"),
        "base": f"{SHARED}{shape} --encoder-attention-heads 2 --criterion masked_lm_accuracy",
        "systems": {
            "rotary": {"--arch": "posenc_masked_lm", "--position-encoding": "rotary"},
            "stock": {"--arch": "roberta", "--max-positions": 64},
        },
        "seeds": [1],
        "budget": {"updates": 4},
        "finetune": {
            "data": str(texts / "tasks"),
            "tasks": ["Length"],
            "flags": {"--max-update": 3, "--separator-token": False},
            "lr": ["1e-3", "1e-2"],
        },
    }
    plan = read_plan(content, "plan")
    check_plan(plan, CPU)
    study(plan, texts / "study", forked)
    for run in load_results(texts / "study").runs:
        assert run.done, run.error
        assert run.updates == 4 and run.scores["loss"] > 0 and "accuracy" in run.scores
        answers = (run.folder / run.files["answers"]["length"]).read_text().split("\n")[:-1]
        assert len(answers) == 12 and {a for row in answers for a in row.split("\t")} <= {
            "long",
            "short",
        }
        right = sum(len(set(row.split("\t"))) == 1 for row in answers)
        assert run.scores["length_accuracy"] == pytest.approx(100 * right / 12, abs=0.01)
        assert set(run.seconds) == {"train", "validate", "finetune"}
        assert (run.folder / run.checkpoint).exists()
        assert not list(run.folder.glob("finetune/*/*.pt"))


@pytest.mark.slow
def test_a_study_of_language_models(texts):
    shape = "--decoder-layers 1 --decoder-embed-dim 16 --decoder-ffn-embed-dim 16 "
    content = {
        "name": "language",
        "recipe": "language_model",
        "data": str(texts / "text"),
        "base": f"{SHARED}{shape} --decoder-attention-heads 2 --criterion cross_entropy",
        "systems": {
            name: {"--arch": "posenc_lm", "--position-encoding": name}
            for name in ("rotary", "learned")
        },
        "seeds": [1],
        "budget": {"updates": 4},
        "validate": {"--batch-size": 2},
        "extrapolation": {"lengths": [32, 64], "last": 16},
    }
    content["systems"]["memory"] = {
        **content["systems"]["rotary"],
        "--task": "language_modeling_with_memory",
        "--memory-length": 16,
    }
    plan = read_plan(content, "plan")
    check_plan(plan, CPU)
    (spec, *_) = specs(plan, {})
    assert [step.name for step in spec.steps] == ["train", "evaluate", "extrapolation"]
    study(plan, texts / "study", forked)
    rotary, learned, memory = load_results(texts / "study").runs
    assert rotary.done and learned.done, rotary.error + learned.error
    assert memory.done and memory.scores["loss"] > 0, memory.error
    assert sorted(rotary.extrapolation) == [32, 64] and sorted(learned.extrapolation) == [32]
    assert rotary.scores["perplexity"] == pytest.approx(2 ** rotary.scores["loss"], rel=0.01)


def test_documents_are_scored_near_and_far_by_sentence_and_by_document(tmp_path):
    pytest.importorskip("sacrebleu", reason="an extra: study")
    groups = {"all": (50, 8), "it": (50, 8), "it:er": (50, 8)}
    groups.update({"distance 1": (100, 1), "distance 2": (50, 3), "distance >3": (25, 4)})
    found = {name: {"accuracy": a, "choices": n} for name, (a, n) in groups.items()}
    (tmp_path / "choices.json").write_text(json.dumps({"accuracies": found, "scores": []}))
    scores = {"accuracy_6": 50, "accuracy_it_6": 50, "near_6": 62.5, "far_6": 25}
    assert documents.chosen(tmp_path, "choices.json", "_6") == {"scores": scores}
    lines = ["a b c d e", "f g h i j", "", "k l m n o"]
    (tmp_path / "reference").write_text("\n".join(lines) + "\n")
    (tmp_path / "hypotheses.txt").write_text("\n".join(lines) + "\n")
    texts = translation.Texts(Text("en", "de"), str(tmp_path / "reference"), "")
    assert documents.score(tmp_path, texts)["scores"] == {"bleu": 100, "d_bleu": 100}


def test_data_without_context_are_no_documents(tmp_path):
    (tmp_path / "text.settings").write_text("SOURCE=en\nTARGET=de\nCONTEXT=\n")
    plan = Plan("x", "documents", {"folder": str(tmp_path)}, {}, {}, (), {})
    assert "are no samples of documents" in message(documents.context_of, plan)
    (tmp_path / "text.settings").write_text("CONTEXT=0,2\nCONTEXT_SIDES=source\n")
    assert documents.context_of(plan) == ("2", "source")
