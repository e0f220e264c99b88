"""Language models through fairseq's command lines: training, perplexity, prompts, long texts."""

import json
import math
import re

import pytest
import torch
from commands import ROOT, TRAINING, USER_DIR, Command, average, read, run, succeed

from fairseq_posenc.checkpoints import read_checkpoint
from fairseq_posenc.models.language_model import MODEL, PRESETS

pytest_plugins = ["toy"]

SHAPE = [
    *("--decoder-layers", "2", "--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "24"),
    *("--decoder-attention-heads", "2"),
]
SIZES = ["--decoder-input-dim", "16", "--decoder-output-dim", "16"]
LENGTH = 16
TASK = ["--task", "language_modeling"]
BLOCKS = [*TASK, "--tokens-per-sample", str(LENGTH)]
PROMPTS = ["a1 a2 a3 a4 a5", "a6", "a7 a8 a9"]
FRESH = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]
TABLE, T5_TABLE = "decoder.embed_positions.weight", "decoder.position_bias.t5.table.weight"


@pytest.fixture(scope="module")
def data(toy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm")
    parts = [f for n in ("train", "valid") for f in (f"--{n}pref", folder / n)]
    for name in ("train", "valid"):
        (folder / name).write_text((toy.text / f"{name}.src").read_text())
    succeed(
        "preprocess", "--only-source", *parts, "--testpref", folder / "valid", "--destdir", folder
    )
    return folder


def train(data, folder, arch, *flags):
    usual = ["--save-dir", folder, *TRAINING, "--arch", arch, *SHAPE, *BLOCKS]
    return succeed("train", data, *USER_DIR, *usual, *flags)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Checkpoints of a model of each encoding after three epochs, by encoding."""
    folder = tmp_path_factory.mktemp("trained")

    def checkpoint(encoding):
        path = folder / encoding / "checkpoint_last.pt"
        if not path.exists():
            train(data, path.parent, MODEL, "--position-encoding", encoding, "--max-epoch", "3")
        return path

    return checkpoint


def eval_lm(data, checkpoint, *flags):
    """Run fairseq-eval-lm; it may fail."""
    usual = ["--path", checkpoint, "--cpu", "--num-workers", "0", *BLOCKS, "--max-tokens", "200"]
    return run("eval_lm", data, *USER_DIR, *usual, *flags)


def perplexity(finished):
    assert finished.status == 0, finished.err[-2000:]
    return float(re.findall(r"Perplexity: (\S+)", finished.out + finished.err)[-1])


def continued(data, checkpoint, prompts, *flags, batch=1):
    """What fairseq-interactive writes after the *prompts*, by their number."""
    search = ["--beam", "2", "--max-len-b", "12", "--cpu", *TASK]
    sizes = ["--buffer-size", batch, "--batch-size", batch]
    arguments = [data, *USER_DIR, "--path", checkpoint, *search, *sizes, *flags]
    lines = "\n".join(prompts) + "\n"
    return succeed("interactive", *arguments, stdin=lines).hypotheses()


def same(found, expected):
    """Whether two searches found the same texts with the same scores."""
    assert found.keys() == expected.keys()
    for number, hypotheses in expected.items():
        assert [text for _, text in found[number]] == [text for _, text in hypotheses]
        for (score, _), (other, _) in zip(found[number], hypotheses):
            assert score == pytest.approx(other, abs=1e-4)
    return True


@pytest.mark.parametrize("arch", PRESETS)
def test_every_architecture_trains_resumes_scores_and_continues(arch, data, tmp_path):
    first = train(data, tmp_path, arch).losses()
    second = train(data, tmp_path, arch, "--max-epoch", "2").losses()
    assert "valid 1" in first and "valid 2" in second and "update 1" not in second
    checkpoint = tmp_path / "checkpoint_last.pt"
    scored = eval_lm(data, checkpoint)
    assert 1 < perplexity(scored) < 1000
    words = (data / "valid").read_text().split()
    tokens = len(words) + len((data / "valid").read_text().splitlines())
    assert f"Evaluated {tokens} tokens" in scored.out + scored.err
    found = continued(data, checkpoint, PROMPTS[:2])
    assert all(found[n][0][1].startswith(prompt) for n, prompt in enumerate(PROMPTS[:2]))


def test_validating_gives_the_loss_of_training_and_the_perplexity_of_eval_lm(data, tmp_path):
    logged = train(data, tmp_path, "roformer_lm_tiny").losses()["valid 1"]
    checkpoint = average(tmp_path, "--num-epoch-checkpoints", "1")
    usual = [*BLOCKS, "--path", checkpoint, "--cpu", "--num-workers", "0", "--max-tokens", "200"]
    found = succeed("validate", data, *USER_DIR, *usual, "--log-format", "json").entries("valid")
    assert float(found[0]["valid_loss"]) == pytest.approx(logged, abs=2e-3)
    assert perplexity(eval_lm(data, checkpoint)) == pytest.approx(2**logged, rel=3e-3)


@pytest.mark.parametrize("encoding", ["learned", "rotary", "alibi", "learned+t5"])
def test_prompts_of_several_lengths_are_continued_as_alone(encoding, data, trained):
    """In a batch the shorter ones are padded."""
    checkpoint = trained(encoding)
    alone = continued(data, checkpoint, PROMPTS)
    together = continued(data, checkpoint, PROMPTS, batch=3)
    assert same(together, alone)
    texts = [alone[n][0][1] for n in range(3)]
    assert all(text.startswith(prompt) for text, prompt in zip(texts, PROMPTS))
    assert any(len(text) > len(prompt) for text, prompt in zip(texts, PROMPTS))


def test_generate_continues_the_sentences_of_a_test_set(data, trained):
    flags = ["--path", trained("rotary"), "--cpu", "--beam", "1", "--max-len-b", "14", *TASK]
    flags += ["--sample-break-mode", "eos", "--batch-size", "4", "--num-workers", "0"]
    found = succeed("generate", data, *USER_DIR, *flags).hypotheses()
    lines = (data / "valid").read_text().splitlines()
    assert sorted(found) == list(range(len(lines)))
    assert all(found[n][0][1].startswith(line) for n, line in enumerate(lines))


def test_scores_of_a_search_are_those_of_the_whole_text(data, trained):
    """The search sees one word after the other, eval-lm all at once."""
    (line, *_) = (data / "valid").read_text().splitlines()
    length = len(line.split())
    flags = ["--path", trained("learned+t5"), "--cpu", *TASK]
    search = ["--beam", "1", "--max-len-b", length]  # the prompt leaves nothing to search
    out = succeed("interactive", data, *USER_DIR, *flags, *search, stdin=line + "\n").out
    found = [float(score) for score in re.findall(r"^P-0\t(.*)$", out, re.MULTILINE)[0].split()]
    each = ["--sample-break-mode", "eos", "--output-word-probs"]
    scored = succeed("eval_lm", data, *USER_DIR, *flags, *each)
    text = re.escape(line).replace(r"\ ", r" \[\S+\]\t")
    (words,) = set(re.findall(rf"\b({text} \[\S+\])", scored.out + scored.err))
    want = [float(score) / math.log(2) for score in re.findall(r"\[(\S+)\]", words)]
    assert found[:length] == pytest.approx(want, abs=2e-3) and len(want) == length


def test_adaptive_input_and_softmax(data, tmp_path):
    flags = ["--adaptive-input", "--adaptive-input-cutoff", "8,16", "--tie-adaptive-weights"]
    flags += ["--adaptive-softmax-cutoff", "8,16", "--criterion", "adaptive_loss"]
    flags += ["--ddp-backend", "legacy_ddp"]
    runs = [
        train(data, tmp_path / name, arch, *SIZES, *flags, *extra).losses()
        for name, arch, *extra in (
            ("stock", "transformer_lm"),
            ("same", MODEL, "--position-encoding", "sinusoidal"),
            ("rotary", MODEL, "--position-encoding", "rotary"),
        )
    ]
    assert runs[1] == pytest.approx(runs[0], abs=2e-3)
    assert runs[2].keys() == runs[0].keys()
    assert perplexity(eval_lm(data, tmp_path / "rotary" / "checkpoint_last.pt")) < 1000


def test_keeping_some_layers_is_the_model_with_those_layers(data, tmp_path):
    train(data, tmp_path, "roformer_lm_tiny", "--decoder-layers", "3", "--decoder-layerdrop", "0.2")
    state = read_checkpoint(tmp_path / "checkpoint_last.pt")
    state["cfg"]["model"]["decoder_layers"] = 2
    for key in [key for key in state["model"] if ".layers." in key]:
        number, rest = key.partition(".layers.")[2].split(".", 1)
        value = state["model"].pop(key)
        if number in ("0", "2"):
            state["model"][f"decoder.layers.{int(number) // 2}.{rest}"] = value
    torch.save(state, str(tmp_path / "pruned.pt"))
    keep = ["--model-overrides", "{'decoder_layers_to_keep': '0,2'}"]
    found = perplexity(eval_lm(data, tmp_path / "checkpoint_last.pt", *keep))
    assert found == perplexity(eval_lm(data, tmp_path / "pruned.pt"))
    assert found != perplexity(eval_lm(data, tmp_path / "checkpoint_last.pt"))


# --- warm starts


def carry_over(data, checkpoint, folder, *flags, by="--restore-file"):
    """Start from *checkpoint* with a learning rate of zero.

    Returns:
        what the log lists as left out and as new, and the parameters before and after.
    """
    start = [by, checkpoint, *(FRESH if by == "--restore-file" else [])]
    log = train(data, folder, MODEL, *flags, *start, "--lr", "0", "--max-update", "1")
    left_out = re.findall(r"warm start: left out (\S+)", log.out + log.err)
    new = re.findall(r"warm start: (\S+) \(.*\) starts untrained", log.out + log.err)
    return left_out, new, read(checkpoint)[0], read(folder / "checkpoint_last.pt")[0]


@pytest.mark.parametrize(
    "start, end, left_out, new, by",
    [
        ("learned", "rotary", [TABLE], [], "--restore-file"),
        ("learned", "rotary", [TABLE], [], "--finetune-from-model"),
        ("rotary", "learned", [], [TABLE], "--restore-file"),
        ("learned+t5", "alibi", [TABLE, T5_TABLE], [], "--restore-file"),
        ("alibi", "t5", [], [T5_TABLE], "--finetune-from-model"),
    ],
)
def test_a_model_continues_with_other_positions(
    start, end, left_out, new, by, data, trained, tmp_path
):
    flags = ["--position-encoding", end]
    found = carry_over(data, trained(start), tmp_path, *flags, by=by)
    assert (sorted(found[0]), found[1]) == (left_out, new)
    before, after = found[2:]
    assert set(before) - set(left_out) == set(after) - set(new)
    assert all(torch.equal(before[key], after[key]) for key in set(before) & set(after))


@pytest.mark.parametrize("table", [["--decoder-learned-pos"], []])
def test_stock_continues_as_ours_and_as_a_roformer(table, data, tmp_path):
    train(data, tmp_path / "stock", "transformer_lm", *SIZES, *table)
    stock = tmp_path / "stock" / "checkpoint_last.pt"
    encoding = "learned" if table else "sinusoidal"
    same_positions = ["--position-encoding", encoding]
    assert carry_over(data, stock, tmp_path / "same", *same_positions)[:2] == ([], [])
    ours = tmp_path / "same" / "checkpoint_last.pt"
    assert perplexity(eval_lm(data, ours)) == perplexity(eval_lm(data, stock))
    rotary = ["--position-encoding", "rotary"]
    left_out, new, _, _ = carry_over(data, stock, tmp_path / "rotary", *rotary)
    assert (left_out, new) == ([TABLE] if table else [], [])


# --- beyond the length of training


LONG = ["--tokens-per-sample", "48"]
READ_LONG = {"max_target_positions": 48}


def scaling(rule, factor=3, **others):
    return {**READ_LONG, "rotary_scaling": rule, "rotary_scaling_factor": factor, **others}


def overrides(settings):
    return ["--model-overrides", str(settings)]


def warnings_in(finished):
    return re.findall(r"longer than the (\d+) tokens of training", finished.out + finished.err)


def test_a_longer_text_needs_an_override_that_the_message_names(data, trained):
    message = eval_lm(data, trained("rotary"), *LONG).message()
    assert "--model-overrides \"{'max_target_positions': 48}\"" in message


def test_a_longer_text_is_read_with_one_warning_or_with_scaling(data, trained):
    checkpoint = trained("rotary")
    usual = eval_lm(data, checkpoint)
    assert warnings_in(usual) == []
    plain = eval_lm(data, checkpoint, *LONG, *overrides(READ_LONG))
    assert warnings_in(plain) == ["16"]
    found = {perplexity(plain)}
    for rule in ("linear", "ntk", "yarn"):
        scaled = eval_lm(data, checkpoint, *LONG, *overrides(scaling(rule)))
        assert warnings_in(scaled) == []
        found.add(perplexity(scaled))
    assert len(found) == 4 and all(1 < value < 1000 for value in found)
    short = eval_lm(data, checkpoint, *LONG, *overrides(scaling("yarn", factor=2)))
    assert warnings_in(short) == ["16"]


def test_no_warning_where_length_was_never_learned(data, trained):
    for encoding in ("alibi", "t5"):
        finished = eval_lm(data, trained(encoding), *LONG, *overrides(READ_LONG))
        assert perplexity(finished) < 1000 and not warnings_in(finished)


def test_a_prompt_is_continued_beyond_the_length_of_training(data, trained):
    checkpoint = trained("rotary")
    search = ["--beam", "1", "--max-len-b", "30", "--min-len", "28"]
    texts = {
        continued(data, checkpoint, ["a1"], *search, *overrides(settings))[0][0][1]
        for settings in (READ_LONG, scaling("linear"))
    }
    assert all(len(text.split()) >= 28 for text in texts)


@pytest.mark.parametrize(
    "settings, named",
    [
        ({"rotary_scaling": "dynamic"}, "--rotary-scaling dynamic"),
        ({"rotary_scaling": "yarn"}, "--rotary-scaling yarn: give --rotary-scaling-factor"),
        ({"rotary_scaling_factor": 0}, "--rotary-scaling-factor 0"),
        ({"position_encoding": "alibi"}, "position_encoding='alibi'"),
    ],
)
def test_overrides_that_cannot_work(settings, named, data, trained):
    assert named in eval_lm(data, trained("rotary"), *overrides(settings)).message()


def test_a_checkpoint_older_than_the_flags_takes_them(data, trained, tmp_path):
    """Its settings do not mention them, and fairseq would skip them without a word."""
    state = read_checkpoint(trained("rotary"))
    for name in ("rotary_scaling", "rotary_scaling_factor", "rotary_original_length"):
        del state["cfg"]["model"][name]
    torch.save(state, str(tmp_path / "old.pt"))
    yarn = overrides(scaling("yarn", rotary_original_length=LENGTH))
    old, new, plain = (
        perplexity(eval_lm(data, path, *LONG, *flags))
        for path, flags in (
            (tmp_path / "old.pt", yarn),
            (trained("rotary"), yarn),
            (tmp_path / "old.pt", overrides(READ_LONG)),
        )
    )
    assert old == new != plain


def test_training_on_at_another_length_says_what_changed(data, trained, tmp_path):
    flags = ["--position-encoding", "rotary", "--tokens-per-sample", "32"]
    flags += ["--rotary-scaling", "linear", "--rotary-scaling-factor", "2"]
    flags += ["--rotary-original-length", str(LENGTH), "--restore-file", trained("rotary"), *FRESH]
    log = train(data, tmp_path, MODEL, *flags)
    assert "warm start: --rotary-scaling none -> linear" in log.out + log.err
    assert not warnings_in(log)
    kept = read(tmp_path / "checkpoint_last.pt")[1]
    assert (kept["rotary_scaling"], kept["rotary_original_length"]) == ("linear", LENGTH)
    longer = ["--tokens-per-sample", "32"]
    assert not warnings_in(eval_lm(data, tmp_path / "checkpoint_last.pt", *longer))


@pytest.mark.parametrize("arch", [MODEL, "roformer_lm_tiny"])
def test_hydra_keeps_the_length_of_training(arch, data, tmp_path):
    shape = {f[2:].replace("-", "_"): int(n) for f, n in zip(SHAPE[::2], SHAPE[1::2])}
    settings = {
        "common": {"cpu": True, "user_dir": USER_DIR[1], "seed": 1},
        "checkpoint": {"save_dir": str(tmp_path / "checkpoints")},
        "task": {"_name": "language_modeling", "data": str(data), "tokens_per_sample": LENGTH},
        "criterion": {"_name": "cross_entropy"},
        "dataset": {"max_tokens": 160, "num_workers": 0},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "optimization": {"lr": [0.01], "max_update": 2},
        "model": {"_name": arch, "position_encoding": "rotary", **shape},
    }
    (tmp_path / "here.yaml").write_text("# @package _global_\n" + json.dumps(settings))
    where = ["--config-dir", tmp_path, "--config-name", "here", f"hydra.run.dir={tmp_path}"]
    succeed("hydra_train", *where)
    checkpoint = tmp_path / "checkpoints" / "checkpoint_last.pt"
    plain = eval_lm(data, checkpoint, *LONG, *overrides(READ_LONG))
    assert warnings_in(plain) == ["16"]
    assert not warnings_in(eval_lm(data, checkpoint, *LONG, *overrides(scaling("yarn"))))
    assert not warnings_in(eval_lm(data, checkpoint))


def test_the_catalogue_names_the_family():
    listed = Command("fairseq_posenc", ["list"]).finish().out
    assert str(ROOT) not in listed
    assert all(f"  {arch} " in listed for arch in PRESETS)
