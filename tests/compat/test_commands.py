"""Work-arounds for fairseq as its commands see them: sentences, data, language models, beams."""

import pytest
from support import commands, stock_runs
from support.stock_runs import PLUGIN, SIZES, TINY

pytestmark = pytest.mark.journeys

folder, trained = stock_runs.folder, stock_runs.trained

# No sentence is lost


@pytest.mark.parametrize("number, size", enumerate(SIZES))
def test_generate_translates_every_sentence(folder, trained, number, size):
    subset = f"test{number or ''}"
    flags = ("--path", trained, "--beam", 1, "--max-len-b", 3, "--gen-subset", subset, "--cpu")
    finished = commands.succeed("generate", folder / "data", *flags, *PLUGIN)
    assert sorted(finished.hypotheses()) == list(range(size))


def test_validation_scores_every_sentence(folder, trained):
    flags = ("--task", "translation", "--path", trained, "--max-tokens", 1000, "--cpu")
    log = commands.succeed("validate", folder / "data", *flags, "--log-format", "json", *PLUGIN)
    words = sum(len(line.split()) + 1 for line in (folder / "valid.b").read_text().splitlines())
    assert f'"valid_wpb": "{words}"' in log.out + log.err
    assert '"valid_bsz": "13"' in log.out + log.err


# Data


@pytest.mark.parametrize(
    "data, flags, says",
    [
        ("empty", (), "cannot mmap an empty file"),
        (
            "long",
            ("--max-source-positions", 20, "--max-target-positions", 20),
            "--skip-invalid-size-inputs-valid-test",
        ),
        ("long", ("--max-tokens-valid", 10), "raise --max-tokens"),
    ],
)
def test_data_that_cannot_be_used_end_a_training(folder, tmp_path, data, flags, says):
    finished = commands.run("train", folder / data, *TINY, *flags, "--save-dir", tmp_path)
    assert finished.status and says in finished.err
    assert not list(tmp_path.iterdir())


def test_command_line_with_another_spelling_of_the_folder(folder, trained, tmp_path):
    link = tmp_path / "fairseq_posenc"
    link.symlink_to(PLUGIN[1])
    flags = ("--path", trained, "--cpu", "--beam", 1, "--max-len-b", 3, "--user-dir", f"{link}/")
    assert commands.succeed("generate", folder / "data", *flags).hypotheses()


# Language models


@pytest.fixture(scope="module")
def language_model(folder):
    """Train a language model of 16 positions; return its data and its checkpoint."""
    data, run = folder / "lm", folder / "lm-run"
    commands.succeed(
        *("preprocess", "--only-source", "--destdir", data, "--trainpref", folder / "train.a"),
        *("--validpref", folder / "valid.a", "--testpref", folder / "test9.a"),
    )
    commands.succeed(
        *("train", data, "--cpu", "--task", "language_modeling", "--arch", "transformer_lm"),
        *("--decoder-layers", 1, "--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8),
        *("--decoder-attention-heads", 2, "--optimizer", "adam", "--max-epoch", 1, *PLUGIN),
        *("--tokens-per-sample", 16, "--max-tokens", 200, "--save-dir", run, "--num-workers", 0),
    )
    return data, run / "checkpoint_last.pt"


@pytest.mark.parametrize("tokens", [None, 17])
def test_perplexity_of_text_left_out_is_an_error(language_model, tokens):
    data, path = language_model
    flags = ("--tokens-per-sample", tokens) if tokens else ()
    message = commands.run("eval_lm", data, "--path", path, "--cpu", *flags, *PLUGIN).message()
    assert "--tokens-per-sample 16" in message


def test_perplexity_of_the_rest_is_given_on_request(folder, language_model):
    data, path = language_model
    flags = ["--path", path, "--cpu", "--sample-break-mode", "eos", "--tokens-per-sample", 17]
    flags += ["--skip-invalid-size-inputs-valid-test", *PLUGIN]
    few = ["--model-overrides", str({"max_target_positions": 6})]
    finished = commands.succeed("eval_lm", data, *flags, *few)
    lines = (folder / "test9.a").read_text().splitlines()
    tokens = sum(len(line.split()) + 1 for line in lines if len(line.split()) < 6)
    assert 0 < tokens < sum(len(line.split()) + 1 for line in lines)
    assert f"Evaluated {tokens} tokens" in finished.out + finished.err
    none = ["--model-overrides", str({"max_target_positions": 1})]
    message = commands.run("eval_lm", data, *flags, *none).message()
    assert "all of its blocks are skipped as too long" in message


def test_perplexity_is_of_every_token(folder, language_model):
    data, path = language_model
    flags = ("--tokens-per-sample", 16, "--context-window", 5, "--batch-size", 1)
    finished = commands.succeed("eval_lm", data, "--path", path, "--cpu", *flags, *PLUGIN)
    tokens = sum(len(line.split()) + 1 for line in (folder / "test9.a").read_text().splitlines())
    assert f"Evaluated {tokens} tokens" in finished.out + finished.err


# Diverse beam search


def test_diverse_beams_of_a_sentence_do_not_depend_on_its_batch(folder, trained):
    search = ("--path", trained, "--beam", 4, "--max-len-b", 6, "--cpu", *PLUGIN)
    search += ("--diverse-beam-groups", 2, "--gen-subset", "test3")
    one, all_of_them = (
        commands.succeed("generate", folder / "data", *search, "--batch-size", size).hypotheses()
        for size in (1, 9)
    )
    assert len(one) == 9 and one.keys() == all_of_them.keys()
    for number, found in one.items():
        assert [text for _, text in found] == [text for _, text in all_of_them[number]]
