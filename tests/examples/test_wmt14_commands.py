"""What the WMT14 scripts would run: batch arithmetic, flags, Slurm."""

import os
import re
import signal
import subprocess
import time

import pytest
import torch
from support.recipes import (
    EXAMPLES,
    assert_error,
    bash,
    check_flags,
    commands,
    environment,
    flags_of,
    trainings,
    trainings_in,
    write,
)

SBATCH = EXAMPLES / "train.sbatch"


def training(cwd, *arguments, **environment):
    result = bash("train.sh", "arch", "data", "--dry-run", *arguments, cwd=cwd, **environment)
    return flags_of(commands(result)[-1])


@pytest.mark.parametrize("nodes, gpus", [(1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (4, 4), (2, 8)])
def test_an_update_has_25k_tokens_whatever_the_machine(tmp_path, nodes, gpus):
    ranks = []
    for node in range(nodes):
        multi = ("--nodes", nodes, "--node-rank", node, "--init-method", "tcp://first:1")
        flags = training(tmp_path, "--gpus", gpus, *(multi if nodes > 1 else ()))
        tokens, passes = int(flags["--max-tokens"]), int(flags["--update-freq"])
        assert tokens <= 3584
        assert abs(nodes * gpus * tokens * passes - 25000) <= 2500
        assert passes == 1 or nodes * gpus * 3584 * (passes - 1) < 25000  # no needless pass
        assert flags["--distributed-world-size"] == str(nodes * gpus)
        assert "--fp16" in flags and "--cpu" not in flags
        if nodes * gpus > 1:
            first = int(flags["--distributed-rank"])
            ranks += range(first, first + gpus)
            method = flags["--distributed-init-method"]
            assert (
                method == "tcp://first:1" if nodes > 1 else re.match(r"tcp://localhost:\d", method)
            )
    if nodes * gpus > 1:
        assert ranks == list(range(nodes * gpus))
    assert os.listdir(tmp_path) == []


def test_training_is_the_papers_and_the_users_flags_come_last(tmp_path):
    flags = training(tmp_path, "--gpus", 8)
    check_flags(
        flags,
        "--arch arch --optimizer adam --adam-betas '(0.9, 0.98)' --lr 5e-4 "
        "--lr-scheduler inverse_sqrt --warmup-init-lr 1e-7 --warmup-updates 4000 "
        "--label-smoothing 0.1 --dropout 0.1 --required-batch-size-multiple 1 "
        f"--user-dir {EXAMPLES.parent}/fairseq_posenc --save-dir runs/wmt14_en_de/arch",
    )
    assert "--share-all-embeddings" in flags
    assert int(flags["--keep-last-epochs"]) >= 5
    assert 100000 % int(flags["--save-interval-updates"]) == 0  # the last of them is averaged
    assert int(flags["--keep-interval-updates"]) >= 20  # of the paper's big model
    assert training(tmp_path, "--gpus", 8, "--", "--lr", "1e-3")["--lr"] == "1e-3"
    cpu = training(tmp_path, "--cpu", "--tokens-per-batch", 300)
    assert "--cpu" in cpu and "--fp16" not in cpu and cpu["--max-tokens"] == "300"


def test_a_dry_run_of_everything_leaves_nothing_behind(tmp_path):
    prepared = commands(bash("prepare.sh", "out", "--dry-run", cwd=tmp_path))
    urls = [command[-1] for command in prepared if command[0] == "curl"]
    assert [url.rsplit("/", 1)[1] for url in urls] == [
        "training-parallel-europarl-v7.tgz",
        "training-parallel-commoncrawl.tgz",
        "training-parallel-nc-v9.tgz",
        "dev.tgz",
        "test-full.tgz",
    ]
    learned = [flags_of(command) for command in prepared if "learn-subwords" in command]
    assert learned[0]["--vocabulary-size"] == "37000"
    evaluated = commands(bash("evaluate.sh", "data", "ckpt", "--dry-run", cwd=tmp_path))
    average, generate = flags_of(evaluated[0]), flags_of(evaluated[1])
    assert average["--num-update-checkpoints"] == "5" and average["--inputs"] == "ckpt"
    flags = ["--dry-run", "--last-epoch", 9]
    epochs = commands(bash("evaluate.sh", "data", "ckpt", *flags, cwd=tmp_path))
    average_of_epochs = flags_of(epochs[0])
    assert average_of_epochs["--num-epoch-checkpoints"] == "5"
    assert average_of_epochs["--checkpoint-upper-bound"] == "9"
    assert generate["--path"] == average["--output"]
    assert generate["--beam"] == "4" and generate["--lenpen"] == "0.6"
    assert generate["--required-batch-size-multiple"] == "1"
    assert os.listdir(tmp_path) == []


SRUN = """#!/usr/bin/env bash
echo "${SRUN_CPUS_PER_TASK:-}" >"$CALLS.cpus"
while [[ $1 == --* ]]; do shift; done
for ((SLURM_NODEID = 0; SLURM_NODEID < SLURM_NNODES; SLURM_NODEID++)); do
    SLURM_NODEID=$SLURM_NODEID "$@"
done
"""
SCONTROL = """#!/usr/bin/env bash
if [[ $1 == show ]]; then printf 'node-a\\nnode-b\\n'; else echo "$@" >>"$CALLS"; fi
"""


@pytest.fixture
def slurm(tmp_path):
    """Stand-ins for srun and scontrol, and a job of two nodes in the environment."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in (("srun", SRUN), ("scontrol", SCONTROL)):
        (programs / name).write_text(body)
        (programs / name).chmod(0o755)
    return {
        "PATH": f"{programs}{os.pathsep}{environment()['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "SLURM_JOB_ID": "123456",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NODELIST": "node-[a-b]",
        "EXAMPLES_DIR": str(EXAMPLES),
    }


TRAININGS = sorted(EXAMPLES.glob("*/train.sh"))
MACHINES = {
    "--gpus 4 --nodes 2": "--init-method",
    "--nodes 2 --node-rank 2": "--node-rank 2",
    "--slurm": "srun",
    "--gpus 3": "3 GPUs",
}


@pytest.mark.parametrize("train", TRAININGS, ids=lambda path: path.parent.name)
def test_a_machine_that_cannot_be_meant_is_one_line(train, tmp_path):
    for options, message in MACHINES.items():
        # the others have batches of tokens, which need no equal shares
        if "3" not in message or "equal_shares" in train.read_text():
            given = ("roformer", "data", "--dry-run", *options.split())
            assert_error(bash(train, *given, cwd=tmp_path), message)


@pytest.mark.parametrize("train", TRAININGS, ids=lambda path: path.parent.name)
def test_every_training_can_be_a_job(train, tmp_path):
    given = ("model", "data", "--dry-run")
    (command,) = commands(bash(SBATCH, train.parent.name, *given, cwd=tmp_path))
    assert command[0] == "srun" and str(train) in command
    assert command[-3:] == [*given] and "--slurm" in command


@pytest.mark.parametrize(
    "release, arch, backend",
    [
        ("0.12.2", "transformer", "legacy_ddp"),
        ("0.12.2", "roformer_base", "absent"),
        ("0.12.3.1", "transformer", "absent"),
    ],
)
def test_legacy_ddp_is_for_layers_with_parameters_that_are_never_used(
    release, arch, backend, tmp_path
):
    """The encoder layers of fairseq's own in 0.12.2; this plug-in takes their copies away."""
    installed = tmp_path / "site" / f"fairseq-{release}.dist-info"
    installed.mkdir(parents=True)
    write(installed / "METADATA", ["Metadata-Version: 2.1", "Name: fairseq", f"Version: {release}"])
    given = (arch, "data", "--dry-run", "--gpus", "8")
    result = bash("train.sh", *given, cwd=tmp_path, PYTHONPATH=str(installed.parent))
    (flags,) = trainings_in(commands(result))
    assert flags["--distributed-world-size"] == "8"
    assert flags.get("--ddp-backend", "absent") == backend


@pytest.mark.parametrize(
    "train",
    ["bert_pretraining/train.sh tupe_r", "clue_pretraining/train.sh gau"]
    + ["language_model/train.sh t5", "long_chinese/train.sh wobert --stages 64x8x9"],
)
def test_models_that_use_all_their_parameters_take_the_default_back_end(train, tmp_path):
    script, *given = train.split()
    found = trainings(EXAMPLES / script, *given, "data", "--gpus", "8", cwd=tmp_path)
    assert found and not any("--ddp-backend" in flags for flags in found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("train", TRAININGS, ids=lambda path: path.parent.name)
def test_a_dry_run_needs_neither_gpus_nor_data(train, tmp_path):
    model = "rotary" if train.parent.name == "language_model" else "roformer"
    found = trainings(train, model, "data", cwd=tmp_path)
    assert found and {flags["--distributed-world-size"] for flags in found} == {"8"}


def spooled(tmp_path):
    """Where Slurm would put its copy of the job script, away from the recipe."""
    copy = tmp_path / "slurm_script"
    copy.write_bytes(SBATCH.read_bytes())
    return copy


def test_slurm_starts_one_training_over_all_nodes(tmp_path, slurm):
    def job(**environment):
        flags = ("wmt14_en_de", "arch", "data", "--gpus", "4", "--dry-run", "--", "--lr", "1e-3")
        result = bash(spooled(tmp_path), *flags, cwd=tmp_path, **{**slurm, **environment})
        return [flags_of(command) for command in commands(result) if "fairseq-train" in command]

    nodes = job(SLURM_CPUS_PER_TASK="8")
    assert (tmp_path / "calls.cpus").read_text() == "8\n"  # srun does not inherit the number
    assert [node["--distributed-rank"] for node in nodes] == ["0", "4"]
    assert {node["--distributed-world-size"] for node in nodes} == {"8"}
    assert {node["--lr"] for node in nodes} == {"1e-3"}
    addresses = {node["--distributed-init-method"] for node in nodes}
    assert len(addresses) == 1
    host, port = re.fullmatch(r"tcp://(.*):(\d+)", addresses.pop()).groups()
    assert host == "node-a" and 1024 < int(port) < 32768
    others = {job(SLURM_JOB_ID="123457")[0]["--distributed-init-method"]}
    others.add(job(SLURM_RESTART_COUNT="7")[0]["--distributed-init-method"])
    assert len(others) == 2 and f"tcp://node-a:{port}" not in others


@pytest.mark.parametrize("sent, requeued", [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_slurm_signals(tmp_path, slurm, sent, requeued):
    """Time is nearly up: requeue. Preempted or cancelled: only stop."""
    stopped = tmp_path / "stopped"
    srun = f"#!/usr/bin/env bash\ntrap 'touch {stopped}; exit 143' TERM\ntouch {tmp_path}/started\n"
    (tmp_path / "bin" / "srun").write_text(srun + "sleep 30 &\nwait\n")
    job = subprocess.Popen(
        ["bash", str(spooled(tmp_path)), "wmt14_en_de", "arch", "data"],
        env={**environment(), **slurm},
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.time() + 20
        while not (tmp_path / "started").exists() and time.time() < deadline:
            time.sleep(0.05)
        job.send_signal(sent)
        assert job.wait(timeout=20) != 0
    finally:
        job.kill()
    assert stopped.exists()
    calls = tmp_path / "calls"
    assert (calls.read_text() if calls.exists() else "") == "requeue 123456\n" * requeued


def test_slurm_gives_the_status_of_the_training(tmp_path, slurm):
    for status in (0, 3):
        (tmp_path / "bin" / "srun").write_text(f"#!/usr/bin/env bash\nexit {status}\n")
        result = bash(spooled(tmp_path), "wmt14_en_de", "arch", "data", cwd=tmp_path, **slurm)
        assert result.returncode == status


def test_slurm_without_the_recipe_says_what_to_set(tmp_path, slurm):
    del slurm["EXAMPLES_DIR"]
    result = bash(spooled(tmp_path), "wmt14_en_de", "arch", "data", cwd=tmp_path, **slurm)
    assert_error(result, "EXAMPLES_DIR")
