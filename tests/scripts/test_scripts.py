"""Scripts: syntax of all, quickstart.sh, matrix.sh, setup.sh, and gpu_tables.sh."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from support.waiting import is_running, until

from gpu_tables import TABLES
from time_models import cases, get_parser

pytestmark = pytest.mark.properties

REPO = Path(__file__).resolve().parents[2]
SCRIPTS = REPO / "scripts"


def made_by_setup():
    """Whether this checkout's setup.sh made this environment, and would not change it."""
    decisive = ("scripts/setup.sh", "pyproject.toml", "constraints/v100.txt")
    content = b"".join((REPO / name).read_bytes() for name in decisive) + f"{REPO}\n".encode()
    marker = Path(sys.prefix) / ".fairseq_posenc"
    return marker.is_file() and marker.read_text() == f"test {sha256(content).hexdigest()}\n"


needs_setup = pytest.mark.skipif(
    not made_by_setup(), reason="this checkout's setup.sh did not make this environment"
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


def assert_one_line_error(result, *words):
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


SHELL = sorted(
    path
    for folder in ("scripts", "examples", ".ci")
    for path in (REPO / folder).rglob("*")
    if path.suffix in (".sh", ".sbatch") or path.parent.name == ".ci"
)
PYTHON = sorted(path for name in ("scripts", "examples") for path in (REPO / name).rglob("*.py"))

# ---- all scripts


@pytest.mark.parametrize("script", SHELL, ids=lambda path: str(path.relative_to(REPO)))
def test_syntax_and_mode(script):
    assert shell("bash", "-n", script).stderr == ""
    text = script.read_text()
    if script != REPO / "examples" / "study" / "commands.sh":  # belongs to the Snakefile
        assert text.startswith("#!/usr/bin/env bash\n") or script.suffix == ".sbatch"
        assert "\nset -euo pipefail\n" in text and os.access(script, os.X_OK)
    assert "shellcheck disable" not in text


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shellcheck():
    result = shell("shellcheck", "--external-sources", "--source-path=SCRIPTDIR", *SHELL)
    assert result.stdout == "" and result.returncode == 0


def tracked_files():
    listing = shell("git", "-C", REPO, "ls-files", "-z")
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [REPO / name for name in listing.stdout.split("\0") if name and (REPO / name).is_file()]


def test_what_has_an_interpreter_in_its_first_line_can_be_run_by_name():
    for script in PYTHON:
        assert script.read_text("utf-8").startswith("#!") == os.access(script, os.X_OK), script


def test_no_path_of_a_machine_and_no_big_file_is_tracked():
    machine_path = re.compile(rb"(?<![\w.}$*~)/-])/(?:home|root|work|opt|Users|mnt)/\w")
    for path in tracked_files():
        content = path.read_bytes()
        assert len(content) < 1_000_000, path
        found = machine_path.search(content)
        assert not found, f"{path}: {content[found.start() : found.start() + 60]!r}"


# ---- quickstart.sh


def test_a_folder_of_another_quickstart_is_refused_with_both_settings(tmp_path):
    (tmp_path / "settings").write_text("ARCH=gau_tiny PAIRS=10000 EPOCHS=10 SEED=1\n")
    venv = tmp_path / "venv"  # nothing must be installed
    run = shell(SCRIPTS / "quickstart.sh", "roformer_tiny", tmp_path, env={"VENV": str(venv)})
    assert_one_line_error(run, "ARCH=gau_tiny", "not ARCH=roformer_tiny", "another folder")
    assert not venv.exists()


# ---- matrix.sh


def environments():
    refusal = shell(SCRIPTS / "matrix.sh", "3.7")
    assert_one_line_error(refusal, "3.7: expected one of official-3.8")
    return refusal.stderr.partition("one of ")[2].split()


def test_every_environment_is_documented_and_every_python_in_one():
    rows = re.findall(r"^\| (\S+-3\.\d+) \|", (REPO / "docs" / "install.md").read_text(), re.M)
    assert rows == environments()
    declared = re.findall(r"Python :: (3\.\d+)", (REPO / "pyproject.toml").read_text())
    assert declared and set(declared) == {name.partition("-")[2] for name in environments()}


def quickstart(arch, out, **variables):
    env = {"VENV": sys.prefix, **{name: str(value) for name, value in variables.items()}}
    return shell(SCRIPTS / "quickstart.sh", arch, out, env=env, timeout=1800)


@needs_setup
@pytest.mark.slow
def test_quickstart_from_end_to_end(tmp_path):
    """A first tiny run executes every stage, a second run none; a low BLEU is a failure."""
    out, small = tmp_path / "out", {"PAIRS": 300, "EPOCHS": 3}  # few epochs to average
    first = quickstart("roformer_tiny", out, **small, MIN_BLEU=0)
    assert first.returncode == 0, first.stderr
    assert "epoch 3, loss on valid" in first.stdout
    assert "BLEU|" in first.stdout and "    reference " in first.stdout
    assert len((out / "output.de").read_text().splitlines()) == 500
    assert (out / "training.png").read_bytes()[:4] == b"\x89PNG"
    kept = "data-bin/dict.en.txt checkpoints/checkpoint3.pt generated.txt model/model.json".split()
    made = [(out / name).stat().st_mtime_ns for name in kept]
    second = quickstart("roformer_tiny", out, **small, MIN_BLEU=99)
    assert [(out / name).stat().st_mtime_ns for name in kept] == made
    assert second.returncode == 1 and "is below 99" in second.stderr.splitlines()[-1]


def test_the_matrix_runs_tests_that_exist():
    text = (SCRIPTS / "matrix.sh").read_text(encoding="utf-8")
    listed = re.search(r"^CORE_TESTS=\((.*?)^\)", text, re.MULTILINE | re.DOTALL).group(1)
    (test,) = re.findall(r"^COMMAND_TEST=(\w+)$", text, re.MULTILINE)
    listed = listed.replace("$COMMAND_TEST", test)
    names = shell("bash", "-c", f"printf '%s\\n' {' '.join(listed.split())}").stdout.split()
    assert len(names) > 5
    for file, _, name in (each.partition("::") for each in names):
        assert (REPO / file).exists() and (not name or f"def {name}(" in (REPO / file).read_text())


# --- setup.sh


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)
    return path


def plan(tmp_path, python, *arguments, smi="exit 9"):
    """The result of setup.sh --dry-run, with this version of Python and a fake nvidia-smi."""
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


#: an nvidia-smi that cannot tell the compute capability
OLD_DRIVER = "[ $1 = -L ] && echo 'GPU 0: Tesla {} (UUID: GPU-7.0)'"


@pytest.mark.parametrize(
    ("python", "smi", "device", "versions"),
    [
        ("3.11", "exit 9", "cpu", "fairseq-fixed==0.12.3.1 torch==2.13.0 numpy<2"),
        ("3.11", "echo '7.0, Tesla V100-SXM2-32GB'", "v100", "torch==2.4.1 numpy<2"),
        ("3.11", "echo '8.0, NVIDIA A100'; echo '7.0, Tesla V100'", "v100", "torch==2.4.1"),
        ("3.11", "echo '7.5, Tesla T4'", "cuda", "torch==2.13.0"),
        ("3.11", "echo '9.0, NVIDIA H100'", "cuda", "torch==2.13.0"),
        ("3.11", OLD_DRIVER.format("V100-PCIE-16GB"), "v100", "torch==2.4.1"),
        ("3.11", OLD_DRIVER.format("T4"), "cuda", "torch==2.13.0"),
        # the device is set by a flag
        ("3.8", "", "cpu", "fairseq==0.12.2 torch==1.13.1"),
        ("3.10", "", "v100", "fairseq-fixed==0.12.3.1 torch==2.4.1 numpy<2"),
        ("3.12", "", "cuda", "fairseq-fixed==0.12.3.1 torch==2.13.0 numpy<2"),
        ("3.13", "", "cpu", "fairseq-fixed==0.12.3.1 torch==2.13.0 numpy>=2.1,<2.4"),
    ],
)
@pytest.mark.refusals
def test_setup_asks_the_gpu_and_chooses_versions(tmp_path, python, smi, device, versions):
    given = {"smi": smi} if smi else {}
    result = plan(tmp_path, python, *([] if smi else ["--device", device]), **given)
    assert result.returncode == 0 and f"device {device}:" in result.stderr
    assert all(f" {version}," in result.stderr for version in versions.split())
    assert not (tmp_path / "venv").exists()


@pytest.mark.refusals
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
@pytest.mark.refusals
def test_setup_refuses_in_one_line(tmp_path, python, arguments, words):
    assert_one_line_error(plan(tmp_path, python, *arguments), *words)


@pytest.mark.refusals
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


@pytest.mark.refusals
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


@pytest.mark.refusals
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


# --- gpu_tables.sh


def test_the_tables_have_flags_that_the_script_takes():
    for table in TABLES.values():
        args = get_parser().parse_args([*table.flags.split(), "--archs", *table.archs])
        assert cases(args) and "--archs" not in table.flags


@pytest.mark.slow
def test_all_tables_are_tried_on_a_cpu(tmp_path):
    ended = shell(SCRIPTS / "gpu_tables.sh", "--cpu", "--minutes", "20", tmp_path, timeout=1300)
    assert ended.returncode == 0, ended.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    timed = {row["table"] for row in rows if "ratio" in row}
    assert timed == set(TABLES)
    errors = {row.get("model") for row in rows if "error" in row}
    assert errors <= {"flash-linear-attention", "hf-roformer"}  # these packages may be missing
