"""The recipes have the papers' hyper-parameters, according to fairseq's parser."""

import json
import re

import pytest
from fairseq import options
from support.recipes import EXAMPLES, WMT14, flags_of, recipe_module, stub_arguments, write

from fairseq_posenc.models.presets import LANGUAGE_MODEL as PRESETS

pytestmark = pytest.mark.properties

BERT = EXAMPLES / "bert_pretraining"
tasks = recipe_module("glue", "tasks")
BERT_FLAGS = ("tupe_r_masked_lm_base", "data", "run")


def parsed(words):
    return options.parse_args_and_arch(options.get_training_parser(), words)


def check(words, expected):
    flags, wanted = flags_of(words), flags_of(expected.split())
    assert {name: flags.get(name, "absent") for name in wanted} == wanted


#: Samples per update on 8 GPUs, updates, warm-up, learning rate, Adam's beta 2, clip norm.
PRETRAINING = {
    "tupe": (256, 1_000_000, 10_000, 1e-4, 0.999, 1.0),
    "roformer": (64, 100_000, 1_000, 1e-5, 0.999, 1.0),
    "roberta": (8192, 500_000, 24_000, 6e-4, 0.98, 0.0),
    "roberta-large": (8192, 500_000, 30_000, 4e-4, 0.98, 0.0),
    "roberta-256": (256, 1_000_000, 10_000, 1e-4, 0.999, 0.0),
    "roberta-2k": (2048, 125_000, 6_000, 7e-4, 0.98, 0.0),
    "roberta-8k": (8192, 31_250, 1_500, 1e-3, 0.98, 0.0),
}


@pytest.mark.parametrize("paper", PRETRAINING)
def test_pre_training(tmp_path, paper):
    (words,) = stub_arguments(BERT / "train.sh", *BERT_FLAGS, cwd=tmp_path, PAPER=paper)
    args = parsed(words)
    samples = 8 * args.batch_size * args.update_freq[0]
    beta, clip = eval(args.adam_betas)[1], args.clip_norm
    found = (samples, args.max_update, args.warmup_updates, args.lr[0], beta, clip)
    assert found == PRETRAINING[paper] and int(args.total_num_update) == args.max_update


STAGES = [(512, 256, 200000), (1536, 256, 12500), (256, 256, 120000), (128, 512, 80000)]
STAGES += [(1536, 256, 10000), (512, 512, 30000)]


def test_the_stages_of_long_chinese_text(tmp_path):
    given = ("roformer_masked_lm_base", "data", "run", "--lr", "1")
    script = EXAMPLES / "long_chinese" / "train.sh"
    found = stub_arguments(script, *given, cwd=tmp_path)
    assert len(found) == len(STAGES)
    for number, (words, (length, samples, updates)) in enumerate(zip(found, STAGES), 1):
        args = parsed(words)
        assert 8 * args.batch_size * args.update_freq[0] == samples
        assert args.batch_size * length <= 16384 and args.lr == [1.0]
        assert args.max_update == int(args.total_num_update) == updates
        before = f"run/stage{number - 1}/checkpoint_last.pt" if number > 1 else "absent"
        check(words, f"--tokens-per-sample {length} --finetune-from-model {before}")
        assert args.save_dir == f"run/stage{number}"
    (tmp_path / "run" / "stage1" / "train.log").write_text("done training in 3 seconds\n")
    assert len(stub_arguments(script, *given, cwd=tmp_path)) == len(STAGES) - 1


#: Recipe, task and flags.
FINE_TUNING = [
    ("glue", "CoLA", "--batch-size 32 --max-epoch 10 --best-checkpoint-metric mcc"),
    ("glue", "QQP", "--batch-size 32 --max-epoch 5 --metrics accuracy,f1 --adam-eps 1e-6"),
    ("glue", "IFLYTEK", "--lr 3e-5 --batch-size 32 --max-epoch 5 --num-classes 119"),
    ("glue", "WSC", "--lr 1e-5 --batch-size 16 --max-epoch 40 --pooler-dropout 0.1"),
    ("reading", "squad", "--lr 1.5e-5 --batch-size 48 --max-epoch 2 --weight-decay 0.01"),
    ("reading", "race", "--lr 1e-5 --batch-size 16 --max-epoch 4 --weight-decay 0.1"),
    ("reading", "copa", "--lr 1e-5 --batch-size 16 --max-epoch 10 --adam-eps 1e-6"),
    ("reading", "cmrc", "--lr 3e-5 --batch-size 32 --max-epoch 3 --adam-eps 1e-8"),
    ("reading", "chid", "--lr 3e-5 --batch-size 32 --max-epoch 3 --weight-decay 0.01"),
    ("reading", "c3", "--lr 2e-5 --batch-size 24 --max-epoch 8 --valid-subset valid,valid1"),
    ("reading", "cail", "--lr 2e-5 --batch-size 32 --max-epoch 3 --separator-token 2"),
]


@pytest.mark.parametrize("recipe, name, expected", FINE_TUNING)
def test_fine_tuning(tmp_path, recipe, name, expected):
    label = tmp_path / "data" / "label"
    label.mkdir(parents=True)
    for split in ("train", "valid", "valid1"):
        write(label / f"{split}.label", ["0"] * 101)
    given = ["data", "model", "run", "--seed", 7]
    if recipe == "glue":
        task = tasks.TASKS[name]
        row = dict.fromkeys(task.text, "a")
        rows = [json.dumps({**row, task.label: str(n % 2)}) for n in range(101)]
        for file in task.files:
            write(tmp_path / f"{file}.jsonl", rows)
        tasks.prepare(name, task, tmp_path, tmp_path / "out")
        (tmp_path / "out" / "task").rename(tmp_path / "data" / "task")
    else:
        given.insert(0, name)
        for number in range(5):
            (tmp_path / "data" / f"input{number}").mkdir()
    script = EXAMPLES / recipe / "train.sh"
    (words,) = stub_arguments(script, *given, cwd=tmp_path, posenc="echo 101")
    check(words, f"{expected} --seed 7")
    args, _ = options.get_training_parser().parse_known_args(words)
    assert args.fp16 and args.update_epoch_batch_itr
    updates = -(-101 // args.batch_size) * args.max_epoch
    flags = flags_of(words)
    assert flags["--total-num-update"] == str(updates)
    if recipe == "glue":
        assert flags["--warmup-updates"] == str(updates * tasks.TASKS[name].warmup // 100)


LONG = EXAMPLES / "long_documents" / "train.sh"
GPT3 = (
    "--arch roformer_lm_small --position-encoding rotary --task language_modeling "
    "--tokens-per-sample 2048 --sample-break-mode none --criterion cross_entropy "
    "--max-update 55000 --warmup-updates 550 --min-lr 6e-5 --lr-scheduler cosine "
    "--weight-decay 0.1 --clip-norm 1.0 --dropout 0 --keep-interval-updates-pattern 5500 "
    "--batch-size 8 --update-freq 4 --save-dir run"
)


def test_language_models_are_those_of_gpt3(tmp_path):
    script = EXAMPLES / "language_model" / "train.sh"
    (words,) = stub_arguments(script, "rotary", "data", "run", "--lr", "1", cwd=tmp_path)
    check(words, f"{GPT3} --lr 1")
    assert 8 * 8 * 4 * 2048 == 1 << 19  # tokens per update on 8 GPUs
    small = PRESETS["roformer_lm_small"]
    for encoding in ("learned", "t5", "alibi", "shaw", "transformer_xl"):
        name = "t5bias" if encoding == "t5" else encoding
        assert PRESETS[f"{name}_lm_small"] == {**small, "position_encoding": encoding}


@pytest.mark.parametrize(
    "part, system, expected",
    [
        ("masked", "rotary", "--task masked_lm --max-positions 1024 --rotary-scaling absent"),
        ("language", "yarn", "--rotary-scaling yarn --rotary-scaling-factor 8"),
        ("masked", "local", "--attention local --local-window 64 --local-global-tokens 1"),
        ("language", "local", "--local-global-tokens absent"),
        ("language", "bigbird", "--attention bigbird --bigbird-block-size 16"),
        ("language", "favor", "--attention favor --linear-rotary inputs"),
        ("language", "memory", "--task language_modeling_with_memory --memory-length 896"),
        ("masked", "full", "--position-encoding absent"),
    ],
)
def test_each_way_to_read_long_documents(part, system, expected, tmp_path):
    given = {"SHORT": "128", "WINDOW": "64", "BLOCK": "16"}
    words = [part, system, "1024", "data", "run", "none", "--lr", "1"]
    (called,) = stub_arguments(LONG, *words, cwd=tmp_path, **given)
    check(called, f"{expected} --lr 1 --max-update 20000")


def test_wmt14_keeps_the_tokens_of_an_update(tmp_path):
    table = re.findall(
        r"^\| (\d+) GPUs? \| `?([^`|]*)`? \|", (WMT14 / "README.md").read_text(), re.M
    )
    assert [gpus for gpus, _ in table] == ["1", "2", "4", "8", "16"]
    for gpus, flags in table:
        given = ("roformer_base", "data", "run", *flags.split())
        (words,) = stub_arguments(WMT14 / "train.sh", *given, cwd=tmp_path)
        args = parsed(words)
        tokens = int(gpus) * args.max_tokens * args.update_freq[0]
        assert abs(tokens - 25000) < 50 and args.max_tokens < 3600
        assert args.fp16 and args.max_update == 100000 and args.share_all_embeddings
    given = ("x", "data", "run", "--cpu")
    (words,) = stub_arguments(WMT14 / "train.sh", *given, cwd=tmp_path, PRECISION="")
    assert "--fp16" not in words
