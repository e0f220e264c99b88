"""Shell scripts: syntax, shellcheck, what setup.sh chooses, and errors of one line."""

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
SCRIPTS = REPO / "scripts"
SHELL = sorted(
    path
    for folder in ("scripts", "examples", ".ci")
    for path in (REPO / folder).rglob("*")
    if path.suffix in (".sh", ".sbatch") or path.parent.name == ".ci"
)
PYTHON = sorted(path for name in ("scripts", "examples") for path in (REPO / name).rglob("*.py"))
SOURCED = set((REPO / "examples" / "common").glob("*.sh"))


def made_by_setup():
    """Whether setup.sh of this checkout made this environment, and would leave it as it is."""
    decisive = ("scripts/setup.sh", "pyproject.toml", "constraints/v100.txt")
    content = b"".join((REPO / name).read_bytes() for name in decisive) + f"{REPO}\n".encode()
    marker = Path(sys.prefix) / ".fairseq_posenc"
    return marker.is_file() and marker.read_text().split()[0] == sha256(content).hexdigest()


needs_setup = pytest.mark.skipif(
    not made_by_setup(), reason="not in an environment that setup.sh made for this checkout"
)


def shell(*command, env=None, timeout=60):
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)
    return path


def assert_one_line_error(result, *words):
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


# ---- all scripts


@pytest.mark.parametrize("script", SHELL, ids=lambda path: str(path.relative_to(REPO)))
def test_syntax_and_mode(script):
    assert shell("bash", "-n", script).stderr == ""
    if script not in SOURCED:
        text = script.read_text()
        assert text.startswith("#!/usr/bin/env bash\n") or script.suffix == ".sbatch"
        assert "\nset -euo pipefail\n" in text
        assert os.access(script, os.X_OK)
    assert "shellcheck disable" not in script.read_text()


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("script", SHELL, ids=lambda path: str(path.relative_to(REPO)))
def test_shellcheck(script):
    result = shell("shellcheck", "--external-sources", "--source-path=SCRIPTDIR", script)
    assert result.stdout == "" and result.returncode == 0


def tracked_files():
    listing = shell("git", "-C", REPO, "ls-files", "-z")
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [REPO / name for name in listing.stdout.split("\0") if name and (REPO / name).is_file()]


@pytest.mark.parametrize("script", PYTHON, ids=lambda path: str(path.relative_to(REPO)))
def test_what_has_an_interpreter_in_its_first_line_can_be_run_by_name(script):
    assert script.read_text(encoding="utf-8").startswith("#!") == os.access(script, os.X_OK)


def test_no_path_of_a_machine_and_no_big_file_is_tracked():
    machine_path = re.compile(rb"(?<![\w.}$*~)/-])/(?:home|root|work|opt|Users|mnt)/\w")
    for path in tracked_files():
        content = path.read_bytes()
        assert len(content) < 1_000_000, path
        found = machine_path.search(content)
        assert not found, f"{path}: {content[found.start() : found.start() + 60]!r}"


# ---- setup.sh


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
        ("echo '6.1, GeForce GTX 1080'", "v100"),
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
        ("3.9", "v100", ["fairseq==0.12.2", "torch==1.13.1"]),
        ("3.10", "v100", ["fairseq-fixed==0.12.3.1", "torch==2.4.1", "numpy<2"]),
        ("3.10", "cpu", ["fairseq-fixed==0.12.3.1", "torch==2.4.1", "numpy<2"]),
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
    deadline = time.monotonic() + 20
    while not (sleeping.exists() and sleeping.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 128 + signal.SIGTERM
    child = int(sleeping.read_text())
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (tmp_path / "venv" / ".fairseq_posenc").read_text() == "unfinished\n"


def is_running(pid):
    result = shell("ps", "-o", "stat=", "-p", pid)
    return result.stdout.strip() != "" and not result.stdout.strip().startswith("Z")


@needs_setup
def test_setup_finds_nothing_to_do_the_second_time():
    start = time.monotonic()
    result = shell(SCRIPTS / "setup.sh", sys.prefix)
    assert result.returncode == 0 and result.stderr.rstrip().endswith("is ready")
    assert time.monotonic() - start < 2


# ---- quickstart.sh and test.sh


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("quickstart.sh", ["--epochs", "0"], ["--epochs 0", "above 0"]),
        ("quickstart.sh", ["--min-bleu", "high"], ["--min-bleu high"]),
        ("quickstart.sh", ["--arch"], ["--arch needs a value"]),
        ("quickstart.sh", ["--epoch", "3"], ["--epoch: unknown option"]),
        ("quickstart.sh", ["--output", str(SCRIPTS)], ["--output", "contains other files"]),
        ("test.sh", ["--venv"], ["--venv needs a value"]),
        ("matrix.sh", ["--only", "3.7"], ["--only 3.7: expected one of official-3.8"]),
    ],
)
def test_wrong_flags_are_one_line(script, arguments, words):
    assert_one_line_error(shell(SCRIPTS / script, *arguments), *words)


@pytest.mark.parametrize("script", ["setup.sh", "quickstart.sh", "test.sh", "matrix.sh"])
def test_help_is_the_head_of_the_script(script):
    result = shell(SCRIPTS / script, "--help")
    assert result.returncode == 0 and "--help" in result.stdout and "set -euo" not in result.stdout


# ---- matrix.sh


def environments():
    result = shell(SCRIPTS / "matrix.sh", "--list")
    assert result.returncode == 0 and result.stderr == ""
    return [line.split() for line in result.stdout.splitlines()]


def test_the_documented_table_has_a_row_for_every_environment():
    rows = re.findall(r"^\| (\S+-3\.\d+) \|", (REPO / "docs" / "versions.md").read_text(), re.M)
    assert rows == [name for name, *_ in environments()]


def test_every_python_of_the_package_is_in_an_environment():
    declared = re.findall(r"Python :: (3\.\d+)", (REPO / "pyproject.toml").read_text())
    assert declared and set(declared) == {python for _, python, *_ in environments()}


@needs_setup
@pytest.mark.slow
def test_quickstart_from_end_to_end(tmp_path):
    """A tiny run: every step once, then none again, and low BLEU is a failure."""
    command = [
        SCRIPTS / "quickstart.sh",
        "--venv",
        sys.prefix,
        "--output",
        tmp_path / "out",
        "--pairs",
        "300",
        "--epochs",
        "5",
    ]
    first = shell(*command, "--min-bleu", "0", timeout=600)
    assert first.returncode == 0, first.stderr
    assert "epoch 5 of 5, loss on valid" in first.stdout
    assert "BLEU|" in first.stdout and "    reference " in first.stdout
    assert len((tmp_path / "out" / "output.de").read_text().splitlines()) == 500
    assert (tmp_path / "out" / "training.png").read_bytes()[:4] == b"\x89PNG"

    checkpoint = (tmp_path / "out" / "average.pt").stat().st_mtime_ns
    second = shell(*command, "--min-bleu", "99", timeout=120)
    assert second.stderr.count(": already done") == 6
    assert (tmp_path / "out" / "average.pt").stat().st_mtime_ns == checkpoint
    assert second.returncode == 1 and "is below 99" in second.stderr.splitlines()[-1]


@needs_setup
@pytest.mark.slow
def test_gated_units_learn_the_toy_grammar(tmp_path):
    """The corpus and the training of the quickstart; below 85 BLEU the script fails."""
    flags = ["--venv", sys.prefix, "--output", tmp_path / "out", "--arch", "gau_tiny"]
    finished = shell(SCRIPTS / "quickstart.sh", *flags, "--min-bleu", "85", timeout=1800)
    assert finished.returncode == 0, finished.stderr


def test_the_matrix_runs_tests_that_exist():
    text = (SCRIPTS / "matrix.sh").read_text(encoding="utf-8")
    groups = re.findall(r"tests/test_\{([\w,]+)\}\.py", text)
    files = [f"test_{name}.py" for group in groups for name in group.split(",")]
    single, test = (
        re.search(r'"tests/(\w+\.py)::\$COMMAND_TEST"', text),
        re.search(r'COMMAND_TEST="(\w+)\[(\w+)\]"', text),
    )
    assert len(groups) == 2 and single and test
    for name in [*files, single.group(1)]:
        assert (REPO / "tests" / name).is_file()
    module = importlib.import_module(single.group(1)[: -len(".py")])
    assert test.group(2) in module.KINDS and hasattr(module, test.group(1))
