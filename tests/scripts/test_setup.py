"""setup.sh: what it chooses, refuses and leaves alone."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from support.shell_scripts import REPO, SCRIPTS, assert_one_line_error, needs_setup, shell
from support.waiting import is_running, until

pytestmark = pytest.mark.refusals


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)
    return path


def plan(tmp_path, python, *arguments, smi="exit 9"):
    """What setup.sh would install with this Python and what nvidia-smi says."""
    interpreter = executable(tmp_path / "fakes" / "python", f"echo {python}\n")
    executable(tmp_path / "fakes" / "nvidia-smi", smi + "\n")
    path = f"{tmp_path / 'fakes'}:{os.environ['PATH']}"
    return shell(
        SCRIPTS / "setup.sh",
        "--dry-run",
        *arguments,
        tmp_path / "venv",
        env={"PYTHON": str(interpreter), "PATH": path, "TORCH": ""},
    )


@pytest.mark.parametrize(
    ("smi", "device"),
    [
        ("exit 9", "cpu"),
        ("echo '7.0, Tesla V100-SXM2-32GB'", "v100"),
        ("echo '8.0, NVIDIA A100'; echo '7.0, Tesla V100'", "v100"),
        ("echo '7.5, Tesla T4'", "cuda"),
        ("echo '9.0, NVIDIA H100'", "cuda"),
        # an old driver, which cannot tell the compute capability
        ("[ $1 = -L ] && echo 'GPU 0: Tesla V100-PCIE-16GB (UUID: GPU-7.0)'", "v100"),
        ("[ $1 = -L ] && echo 'GPU 0: Tesla T4 (UUID: GPU-1)'", "cuda"),
    ],
)
def test_setup_asks_the_gpu(tmp_path, smi, device):
    result = plan(tmp_path, "3.11", smi=smi)
    assert result.returncode == 0
    assert f"device {device}:" in result.stderr
    assert ("torch==2.4.1" in result.stderr) == (device == "v100")


@pytest.mark.parametrize(
    ("python", "device", "versions"),
    [
        ("3.8", "cpu", ["fairseq==0.12.2", "torch==1.13.1"]),
        ("3.10", "v100", ["fairseq-fixed==0.12.3.1", "torch==2.4.1", "numpy<2"]),
        ("3.11", "cuda", ["fairseq-fixed==0.12.3.1", "torch==2.13.0", "numpy<2"]),
        ("3.12", "cpu", ["fairseq-fixed==0.12.3.1", "torch==2.13.0", "numpy<2"]),
        ("3.13", "cpu", ["fairseq-fixed==0.12.3.1", "torch==2.13.0", "numpy>=2.1,<2.4"]),
    ],
)
def test_setup_chooses_versions_by_python_and_device(tmp_path, python, device, versions):
    result = plan(tmp_path, python, "--device", device)
    assert result.returncode == 0
    for version in versions:
        assert f" {version}," in result.stderr
    assert not (tmp_path / "venv").exists()


def test_setup_and_the_constraints_file_name_the_same_versions(tmp_path):
    constraints = (REPO / "constraints" / "v100.txt").read_text()
    pins = dict(re.findall(r"^([\w-]+)==(.+)$", constraints, re.MULTILINE))
    chosen = plan(tmp_path, "3.10", "--device", "v100").stderr
    assert f"torch=={pins['torch']}," in chosen
    assert f"fairseq-fixed=={pins['fairseq-fixed']}," in chosen
    setup = (SCRIPTS / "setup.sh").read_text()
    for name in ("omegaconf", "hydra-core"):
        assert f"{name}=={pins[name]}" in setup


@pytest.mark.parametrize(
    ("python", "arguments", "words"),
    [
        ("3.7", [], ["Python 3.7", "3.8 to 3.13"]),
        ("3.14", [], ["Python 3.14", "PYTHON=python3.11"]),
        ("3.13", ["--device", "v100"], ["--device v100", "3.10"]),
        ("3.11", ["--device", "tpu"], ["--device tpu", "auto, cpu, cuda or v100"]),
        ("3.11", ["--gpu"], ["--gpu: unknown option"]),
    ],
)
def test_setup_refuses_in_one_line(tmp_path, python, arguments, words):
    assert_one_line_error(plan(tmp_path, python, *arguments), *words)


def test_setup_leaves_a_folder_that_is_no_environment_alone(tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "thesis.txt").write_text("mine")
    assert_one_line_error(plan(tmp_path, "3.11"), "venv", "is not a virtual environment")
    assert [path.name for path in (tmp_path / "venv").iterdir()] == ["thesis.txt"]


FAKE_PYTHON = """
here=$(dirname "$0")
case "$*" in
    *version_info*) echo 3.11 ;;
    "-c import pip") ;;
    "-c import "*) exit 1 ;;
    "-m pip "*install*) echo "$*" >>"$here/calls"; %s ;;
esac
"""


def fake_environment(tmp_path, when_installing):
    executable(tmp_path / "venv" / "bin" / "python", FAKE_PYTHON % when_installing)
    executable(tmp_path / "fakes" / "nvidia-smi", "exit 9\n")
    executable(tmp_path / "fakes" / "uname", "echo Linux\n")
    return {"PATH": f"{tmp_path / 'fakes'}:{os.environ['PATH']}", "TORCH": ""}


def test_setup_without_gpu_never_asks_for_the_cuda_build(tmp_path):
    env = fake_environment(tmp_path, "echo 'ERROR: No matching distribution'; exit 1")
    result = shell(SCRIPTS / "setup.sh", tmp_path / "venv", env=env)
    assert result.returncode == 1
    assert "--device cuda" in result.stderr.splitlines()[-1]
    calls = (tmp_path / "venv" / "bin" / "calls").read_text().splitlines()
    assert len(calls) == 2
    assert all(re.search(r" torch==[\d.]+\+cpu( |$)", call) for call in calls)
    assert "--timeout 15" in calls[1] and "--timeout" not in calls[0]
    assert (tmp_path / "venv" / ".fairseq_posenc").read_text() == "unfinished\n"


def test_setup_that_is_ended_ends_what_it_started(tmp_path):
    env = fake_environment(tmp_path, 'sleep 60 & echo "$!" >"$here/sleeping"; wait')
    process = subprocess.Popen(
        [str(SCRIPTS / "setup.sh"), str(tmp_path / "venv")],
        env={**os.environ, **env},
        stderr=subprocess.DEVNULL,
    )
    sleeping = tmp_path / "venv" / "bin" / "sleeping"
    until(lambda: sleeping.exists() and sleeping.read_text().strip())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 128 + signal.SIGTERM
    child = int(sleeping.read_text())
    until(lambda: not is_running(child))
    assert (tmp_path / "venv" / ".fairseq_posenc").read_text() == "unfinished\n"


@needs_setup
def test_setup_finds_nothing_to_do_the_second_time():
    start = time.monotonic()
    result = shell(SCRIPTS / "setup.sh", sys.prefix)
    assert result.returncode == 0 and result.stderr.rstrip().endswith("is ready")
    assert time.monotonic() - start < 2
