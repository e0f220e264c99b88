"""Shell scripts: syntax, shellcheck, the quickstart, the matrix, and errors of one line."""

import importlib
import os
import re
import shutil
import sys

import pytest
from support.shell_scripts import REPO, SCRIPTS, assert_one_line_error, needs_setup, shell

pytestmark = pytest.mark.properties

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
    if script != REPO / "examples" / "study" / "commands.sh":  # a part of the Snakefile
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


# ---- quickstart.sh and matrix.sh


def test_a_folder_of_another_quickstart_is_refused_with_both_settings(tmp_path):
    (tmp_path / "settings").write_text("ARCH=gau_tiny PAIRS=10000 EPOCHS=10 SEED=1\n")
    venv = tmp_path / "venv"  # nothing is installed first
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
    """A tiny run: every stage once, then none again, and low BLEU is a failure."""
    out, small = tmp_path / "out", {"PAIRS": 300, "EPOCHS": 3}  # fewer than are averaged otherwise
    first = quickstart("roformer_tiny", out, **small, MIN_BLEU=0)
    assert first.returncode == 0, first.stderr
    assert "epoch 3, loss on valid" in first.stdout
    assert "BLEU|" in first.stdout and "    reference " in first.stdout
    assert len((out / "output.de").read_text().splitlines()) == 500
    assert (out / "training.png").read_bytes()[:4] == b"\x89PNG"
    kept = (
        "data-bin/dict.en.txt",
        "checkpoints/checkpoint3.pt",
        "generated.txt",
        "model/model.json",
    )
    made = [(out / name).stat().st_mtime_ns for name in kept]
    second = quickstart("roformer_tiny", out, **small, MIN_BLEU=99)
    assert [(out / name).stat().st_mtime_ns for name in kept] == made
    assert second.returncode == 1 and "is below 99" in second.stderr.splitlines()[-1]


def test_the_matrix_runs_tests_that_exist():
    text = (SCRIPTS / "matrix.sh").read_text(encoding="utf-8")
    listed = re.search(r"^CORE_TESTS=\(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL).group(1)
    listed = listed.replace("$COMMAND_TEST", "test")
    files = shell("bash", "-c", f"printf '%s\\n' {' '.join(listed.split())}").stdout.split()
    *files, single = (name.partition("::")[0] for name in files)
    assert len(files) > 5 and all((REPO / name).exists() for name in [*files, single])
    test = re.search(r"^COMMAND_TEST=(\w+)$", text, re.MULTILINE)
    module = importlib.import_module(single[: -len(".py")].replace("/", "."))
    assert hasattr(module, test.group(1))
