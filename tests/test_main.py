"""python -m fairseq_posenc: path, list, doctor."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_posenc import doctor
from fairseq_posenc.__main__ import catalogue, main
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.models import FAMILIES

ROOT = Path(__file__).resolve().parents[1]


def test_path_is_what_user_dir_takes(capsys):
    assert main(["path"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.name == "fairseq_posenc" and (path / "__init__.py").is_file()


def test_list_names_every_encoding_with_its_paper_and_every_architecture():
    text = catalogue()
    for encoding in ENCODINGS.values():
        line = next(line for line in text.splitlines() if line.split()[:1] == [encoding.name])
        assert encoding.paper in line and encoding.summary in line
    for presets in (family.presets for family in FAMILIES.values()):
        for name in presets:
            assert f"  {name} " in text


def test_doctor_finds_nothing_broken_here(capsys):
    assert doctor.report(doctor.examine()) == 0
    out = capsys.readouterr().out
    assert "FAIL" not in out and "fairseq_posenc registers" in out


def run_doctor(tmp_path, broken):
    """The doctor's report where some modules do not import."""
    for name, text in broken.items():
        (tmp_path / f"{name}.py").write_text(text)
    code = (
        f"import sys, runpy; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; "
        "sys.argv = ['-m', 'doctor']; import fairseq_posenc; sys.argv[0] = 'x'; "
        "from fairseq_posenc.__main__ import main; sys.exit(main())"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize(
    "text, words",
    [
        ("raise ImportError('no module', name='fairseq')", "fairseq does not import: no module"),
        ("raise ValueError('mutable default')", "fairseq does not import: mutable default"),
        ("import nothing_like_this", "pip install nothing_like_this"),
    ],
)
def test_doctor_runs_where_fairseq_does_not(tmp_path, text, words):
    result = run_doctor(tmp_path, {"fairseq": text})
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert words in result.stdout and "fix: " in result.stdout


def test_doctor_runs_where_torch_does_not(tmp_path):
    result = run_doctor(tmp_path, {"torch": "raise OSError('libc10.so')"})
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "torch does not import: libc10.so" in result.stdout


def test_doctor_names_the_fix_for_known_incompatibilities(monkeypatch):
    versions = {"fairseq": "0.12.2", "numpy": "2.4.6", "pip": "26.3", "omegaconf": "2.0.6"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    monkeypatch.setattr(doctor.sys, "version_info", (3, 12, 1))
    (finding,) = doctor.check_fairseq()
    assert finding.level == doctor.FAIL and "fairseq-fixed" in finding.fix
    assert doctor.check_numpy()[0].level == doctor.WARN
    monkeypatch.setattr(doctor.sys, "version_info", (3, 10, 1))
    assert any("pip<24.1" in finding.fix for finding in doctor.check_fairseq())
    monkeypatch.setattr(doctor.sys, "version_info", (3, 14, 0))
    assert doctor.check_python()[0].level == doctor.FAIL
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert doctor.check_environment()[0].level == doctor.WARN


def test_the_module_runs_as_a_command():
    result = subprocess.run(
        [sys.executable, "-m", "fairseq_posenc", "path"], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_dir()
