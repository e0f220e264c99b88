"""Long-document recipe: what it would run, the task that it makes, the figure."""

import csv

import pytest
from support.recipes import (
    EXAMPLES,
    assert_error,
    bash,
    commands,
    error_of,
    flags_of,
    recipe_module,
    trainings_in,
)

from fairseq_posenc.analysis import figures

RUN = EXAMPLES / "long_documents" / "run.sh"
LENGTHS = (512, 1024)
#: beside --position-encoding rotary, by system; at 1,024 tokens after 128
LANGUAGE = {
    "rotary": {},
    "yarn": {
        "--rotary-scaling": "yarn",
        "--rotary-scaling-factor": "8",
        "--rotary-original-length": "128",
    },
    "local": {"--attention": "local", "--local-window": "64"},
    "bigbird": {"--attention": "bigbird", "--bigbird-block-size": "16"},
    "favor": {"--attention": "favor", "--linear-rotary": "inputs"},
    "memory": {"--task": "language_modeling_with_memory", "--memory-length": "896"},
}
SYSTEM_FLAGS = {name for flags in LANGUAGE.values() for name in flags} - {"--task"}

headings = recipe_module("long_documents", "headings")
results = recipe_module("long_documents", "results")
peak = recipe_module("long_documents", "peak")


def by_folder(found):
    """Flags of the trainings among commands, by the name of their folder."""
    return {"/".join(flags["--save-dir"].split("/")[-2:]): flags for flags in trainings_in(found)}


def dry(folder, *more):
    return commands(bash(RUN, "text", "out", "--small", "--cpu", "--dry-run", *more, cwd=folder))


def test_every_system_goes_on_from_one_model_for_equally_many_tokens(tmp_path):
    runs = by_folder(dry(tmp_path, "--parts", "language"))
    start = runs.pop("language/short-128")
    assert "--finetune-from-model" not in start and not SYSTEM_FLAGS & set(start)
    assert set(runs) == {f"language/{s}-{length}" for s in LANGUAGE for length in LENGTHS}
    for name, flags in runs.items():
        system, length = name.split("/")[1].split("-")
        assert flags["--finetune-from-model"] == f"{start['--save-dir']}/checkpoint_last.pt"
        assert flags["--max-update"] == "20" and flags["--position-encoding"] == "rotary"
        sample = "128" if system == "memory" else length
        assert flags["--tokens-per-sample"] == sample
        rows = int(flags["--batch-size"]) * int(flags["--update-freq"])
        assert rows * int(sample) == 4096
        if length == "1024":
            assert {n: flags[n] for n in SYSTEM_FLAGS & set(flags)} == {
                n: value for n, value in LANGUAGE[system].items() if n != "--task"
            }
            assert flags["--task"] == LANGUAGE[system].get("--task", "language_modeling")
    assert list(tmp_path.iterdir()) == []


def test_masked_language_models_are_tuned_at_their_length(tmp_path):
    found = dry(tmp_path, "--parts", "masked", "--systems", "local memory", "--lengths", "512")
    runs = by_folder(found)
    assert set(runs) == {"masked/short-128", "masked/local-512"}  # memory is for language models
    flags = runs["masked/local-512"]
    assert flags["--local-global-tokens"] == "1"  # [CLS]
    assert flags["--tokens-per-sample"] == "512" and flags["--batch-size"] == "8"
    tuned = [command for command in found if command[0].endswith("glue/finetune.sh")]
    names = {flags_of(c)["--name"]: flags_of(c)["--max-positions"] for c in tuned}
    assert names == {"short-128": "128", "local-512": "512"}
    assert {command[2].split("/out/")[1] for command in tuned} == {
        f"masked/{name}/checkpoint_last.pt" for name in names
    }
    for command in tuned:
        rows = int(flags_of(command)["--batch-size"]) * int(flags_of(command)["--update-freq"])
        assert rows == int(flags_of(command)["--batch"])


def test_a_model_that_exists_goes_on_and_is_tuned_on_short_texts_too(tmp_path):
    start = ["--start", "roberta.pt", "--corpus", "corpus/data-bin", "--lengths", "512"]
    found = dry(tmp_path, *start, "--systems", "full base local")
    assert not any(command[0].endswith("bert_pretraining/prepare.sh") for command in found)
    runs, systems = by_folder(found), ("full", "base", "local")
    assert set(runs) == {
        "masked/short-128",
        *(f"masked/{s}-512" for s in ("full", "base", "local")),
    }
    for name, flags in runs.items():
        length = name.rpartition("-")[2]
        assert flags["--finetune-from-model"] == "roberta.pt" and flags["--max-update"] == "20"
        assert flags["--max-positions"] == flags["--tokens-per-sample"] == length
        assert not any(flag.startswith("--encoder-") for flag in flags)  # the model's own
    assert runs["masked/base-512"]["--rotary-base"] == "160000"
    tuned = [flags_of(command) for command in found if command[0].endswith("glue/finetune.sh")]
    assert {each["--name"]: each["--max-positions"] for each in tuned} == {
        "short-128": "128",
        **{f"{system}-512": "512" for system in systems},
        **{f"{system}-512-short": "128" for system in systems},
    }


@pytest.mark.parametrize(
    "flags, part",
    [
        (["--start", "m.pt"], "give --corpus or --tokenizer, too"),
        (["--start", "m.pt", "--corpus", "c", "--tokenizer", "t"], "give it or --corpus"),
        (["--start", "m.pt", "--corpus", "c", "--parts", "language"], "no other part than masked"),
        (["--start", "m.pt", "--corpus", "c", "--updates", "9"], "--updates: has no effect"),
        (["--corpus", "c"], "--corpus: has no effect without --start"),
    ],
)
def test_mistakes_about_a_model_that_exists(flags, part, tmp_path):
    refused = bash(RUN, "text", "out", "--small", "--cpu", "--dry-run", *flags, cwd=tmp_path)
    assert_error(refused, part)


ARTICLE = """ = {0} =

 {0} is a thing .
 = = {0} one = =
 a b c
 = = = {0} two = = =
 d e
 = = {0} three = =
 f
"""


def test_headings_are_of_the_sections_that_the_excerpt_has():
    lines = "".join(map(ARTICLE.format, "AB")).splitlines()
    found = list(headings.articles(lines, words=9))
    assert [article.body for article in found] == [f"{x} is a thing . a b c d" for x in "AB"]
    assert [article.headings for article in found] == [f"{x} one ; {x} two" for x in "AB"]
    assert not list(headings.articles(lines, words=8))  # less than two headings
    whole = list(headings.articles(lines, words=99))
    assert [article.headings for article in whole] == [
        f"{x} one ; {x} two ; {x} three" for x in "AB"
    ]


def test_half_of_the_examples_have_the_headings_of_another_article(tmp_path):
    articles = [headings.Article(f"h {n}", f"text {n}") for n in range(5)]
    rows = [line.rstrip("\n").split("\t") for line in headings.examples(articles, seed=3)]
    assert len(rows) == 10 and len({tuple(row) for row in rows}) == 10
    for given, body, label in rows:
        assert (given.split()[1] == body.split()[1]) == (label == "yes")
    assert rows == [line.rstrip("\n").split("\t") for line in headings.examples(articles, seed=3)]
    assert "same headings" in error_of(list, headings.examples(articles[:1], 1))
    (tmp_path / "train.txt").write_text("no article\n")
    assert "train.txt" in error_of(headings.main, [str(tmp_path), str(tmp_path / "out")])


def made_up_run(folder, wps, perplexity, memory="", updates=20):
    folder.mkdir(parents=True)
    inner = "epoch 001:     {} / 99 loss=5, wps={}, ups=1{}, num_updates={}\n"
    log = "rank 0: capabilities = 9.0 ; total memory = 80.000 GB ; name = X\n"
    log += inner.format(5, 1, memory, 5) + inner.format(10, wps, memory, 10)
    log += inner.format(20, wps, memory, 20)
    log += (
        f"epoch 001 | valid on 'valid' subset | loss 5 | ppl {perplexity} | num_updates {updates}\n"
    )
    (folder / "train.log").write_text(log + "done training in 3.1 seconds\n")
    (folder / "peak").write_text("512\n")


def test_table_and_figure_of_made_up_runs(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(figures, "RESOLUTION", 20)
    made_up_run(tmp_path / "masked" / "short-128", 1000, 90.5)
    for system, length in (("local", 512), ("local", 1024), ("yarn", 512)):
        made_up_run(tmp_path / "masked" / f"{system}-{length}", 500, 80, ", gb_free=78.5")
    (tmp_path / "masked" / "yarn-512" / "train.log").write_text("epoch 001: 1 / 9 wps=3\n")
    tuned = tmp_path / "tuned" / "local-512" / "belongs"
    (tuned / "lr1e-3-batch8-seed1").mkdir(parents=True)
    (tuned / "lr1e-3-batch8-seed1" / "train.log").write_text(
        '{"epoch": 1, "valid_accuracy": "62.5"}\n'
    )
    (tuned / "task.yaml").write_text((RUN.parent / "tasks.yaml").read_text())
    results.main([str(tmp_path)])
    with open(tmp_path / "results.csv") as file:
        rows = {(r["system"], r["length"]): r for r in csv.DictReader(file)}
    assert len(rows) == 3  # without the training that is not done
    start, local = rows["short", "128"], rows["local", "512"]
    assert float(start["microseconds"]) == 1000 and float(start["mebibytes"]) == 512
    assert start["accuracy"] == "" and float(start["perplexity"]) == 90.5
    assert float(local["microseconds"]) == 2000 and float(local["mebibytes"]) == 1.5 * 1024
    assert float(local["accuracy"]) == 62.5
    assert (tmp_path / "lengths.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    table = capsys.readouterr().out
    assert table.count("\n| ") == 4 and "| `local` | 1,024 | 20 |" in table
    assert "no complete training" in error_of(results.main, [str(tmp_path / "tuned")])


def test_peak_memory_is_recorded_with_the_status(tmp_path):
    record = tmp_path / "run" / "peak"
    assert peak.main([str(record), "sh", "-c", "exit 3"]) == 3
    first = float(record.read_text())
    assert first > 0
    record.write_text("1000000\n")
    assert peak.main([str(record), "true"]) == 0
    assert float(record.read_text()) == 1000000  # of an earlier part of the training
