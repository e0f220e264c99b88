"""fairseq-posenc: shared behaviour, path, list, doctor, the wheel, and standard streams."""

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile

import pytest
from support.commands import ROOT

from fairseq_posenc import __version__
from fairseq_posenc.attention.base import ATTENTIONS
from fairseq_posenc.basics import packages
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli import analysis, commands, get_parser, main
from fairseq_posenc.cli import installation as doctor
from fairseq_posenc.cli.standard import printing, standard_input, standard_output
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.exchange import FORMATS
from fairseq_posenc.models import FAMILIES

HELP = [
    [],
    *([command.name] for command in commands()),
    *(["plot", figure.name] for figure in analysis.FIGURES),
]


@pytest.fixture
def broken(tmp_path):
    """A folder to start Python in, with modules torch and fairseq that fail to import."""
    for name in ("torch", "fairseq"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} was imported')\n")
    return tmp_path


def python(folder, *words):
    """Run Python in *folder*, whose modules hide installed modules."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


# --- starting


def test_help_needs_neither_pytorch_nor_fairseq_nor_a_second(broken):
    code = (
        "import contextlib, sys, time; sys.argv[0] = 'fairseq-posenc'\n"
        "from fairseq_posenc.cli import main\n"
        f"for words in {HELP!r}:\n"
        "    start = time.process_time()\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main([*words, '--help'])\n"
        "    print('spent', time.process_time() - start)\n"
    )
    finished = python(broken, "-c", code)
    assert finished.returncode == 0 and finished.stderr == ""
    *parts, _ = re.split(r"^spent (.*)\n", finished.stdout, flags=re.MULTILINE)
    for words, text, spent in zip(HELP, parts[::2], parts[1::2]):
        assert text.startswith(" ".join(["usage: fairseq-posenc", *words]))
        assert len(text.splitlines()) <= 50  # it fits on a screen
        assert float(spent) < 1
    assert len(parts) == 2 * len(HELP)


@pytest.mark.parametrize("command", ["list", "average --inputs a b --output c"])
def test_a_broken_installation_is_one_line(command, broken):
    finished = python(broken, "-m", "fairseq_posenc", *command.split())
    assert finished.returncode == 1
    (line,) = finished.stderr.splitlines()
    assert "torch cannot be imported (torch was imported)" in line and "doctor" in line


# --- any import registers the plug-in, except in the fairseq-posenc command


def test_the_console_script_does_not_register(broken):
    script = broken / "fairseq-posenc"
    script.write_text("import sys\nfrom fairseq_posenc.cli import main\nsys.exit(main())\n")
    finished = python(broken, str(script), "path")
    assert (finished.stdout, finished.stderr) == (str(ROOT / "fairseq_posenc") + "\n", "")


def test_an_import_registers(broken):
    for statement in ("import fairseq_posenc", "from fairseq_posenc.basics import files"):
        finished = python(broken, "-c", statement)
        assert "was imported" in finished.stderr.splitlines()[-1]


# --- path and list


def test_list_names_everything_that_is_registered():
    lines = doctor.catalogue().splitlines()
    first = {line.split()[0]: line for line in reversed(lines) if line.strip()}
    for registry in (ENCODINGS, ATTENTIONS):
        for name, entry in registry.items():
            assert entry.paper in first[name] and entry.summary in first[name]
    for family in FAMILIES.values():
        assert set(family.presets) <= set(first)
    for name, entry in FORMATS.items():
        assert f"  {name:<16} {entry.summary}; {entry.ways}" in lines


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full to write to")
def test_a_full_disk_under_standard_output_is_one_line():
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "fairseq_posenc", "path"]
        done = subprocess.run(words, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "standard output: cannot be written" in done.stderr


def leaves(parser, *words):
    """Yield the words and the parser of every command that has no subcommands."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield " ".join(words), parser
    for name, command in groups[0].choices.items() if groups else ():
        yield from leaves(command, *words, name)


def test_what_reads_a_model_takes_the_folder_of_a_users_own_parts():
    reads = re.compile("checkpoint|model folder|`fairseq-posenc pack`", re.IGNORECASE)
    for words, parser in leaves(get_parser()):
        shown = [f"{action.metavar or action.dest} {action.help}" for action in parser._actions]
        own = words in ("list", "import")  # these also name what users register
        takes = own or any(map(reads.search, shown))
        assert ("--user-dir" in parser._option_string_actions) == takes, words


# --- doctor


def test_doctor_finds_nothing_broken_here(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "FAIL" not in out
    assert f"fairseq_posenc {__version__} in {ROOT / 'fairseq_posenc'} registers" in out
    for extra in packages.EXTRAS:
        assert extra.module in out


def test_doctor_names_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert doctor.report(doctor.check_extras()) == 0
    out = capsys.readouterr().out
    for name in ("jieba", "scikit-learn", "scipy", "transformers", "pytorch-optimizer"):
        assert re.search(rf"fix: pip install .*\b{name}\b", out), name


@pytest.mark.parametrize(
    "module, text, said",
    [
        ("fairseq", "raise ImportError('no module', name='fairseq')", "imported: no module"),
        ("fairseq", "raise ValueError('mutable default')", "imported: mutable default"),
        ("fairseq", "import nothing_like_this", "pip install nothing_like_this"),
        ("torch", "raise OSError('libc10.so')", "torch cannot be imported: libc10.so"),
    ],
)
def test_doctor_runs_where_a_package_does_not(broken, module, text, said):
    (broken / f"{module}.py").write_text(text)
    result = python(broken, "-m", "fairseq_posenc", "doctor")
    assert result.returncode == 1 and result.stderr == ""
    assert all(words in result.stdout for words in (said, f"{module} cannot", "fix: "))


def test_doctor_names_the_fix_for_known_incompatibilities(monkeypatch):
    versions = {"fairseq": "0.12.2", "numpy": "2.4.6", "pip": "26.3", "omegaconf": "2.0.6"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    monkeypatch.setattr(doctor.sys, "version_info", (3, 12, 1))
    (finding,) = doctor.check_fairseq()
    assert finding.level == doctor.FAIL and "fairseq-fixed" in finding.fix
    assert next(doctor.check_numpy()).level == doctor.WARN
    monkeypatch.setattr(doctor.sys, "version_info", (3, 10, 1))
    assert any("pip<24.1" in finding.fix for finding in doctor.check_fairseq())
    monkeypatch.setattr(doctor.sys, "version_info", (3, 14, 0))
    assert next(doctor.check_python()).level == doctor.FAIL
    for arch, fits, misfit in (
        ("sm_70", (7, 2), (8, 0)),
        ("sm_86", (8, 6), (8, 0)),
        ("sm_90a", (9, 0), (9, 1)),
        ("compute_90", (12, 0), (8, 9)),
    ):
        assert doctor.runs_on(arch, *fits) and not doctor.runs_on(arch, *misfit)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert next(doctor.check_environment()).level == doctor.WARN


# --- the wheel


@pytest.mark.slow
def test_the_wheel_brings_the_command(tmp_path):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source, target = tmp_path / "source", tmp_path / "target"
    archive = ["git", "-C", str(ROOT), "archive", "HEAD"]
    listing = subprocess.run(archive, capture_output=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    source.mkdir()
    subprocess.run(["tar", "x", "-C", str(source)], input=listing.stdout, check=True)
    build = [*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", str(tmp_path), str(source)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True)
    for word, expected in (
        ("--version", f"fairseq_posenc {__version__}\n"),
        ("path", f"{target / 'fairseq_posenc'}\n"),
        ("list", "  roformer_base "),
    ):
        finished = python(target, str(target / "bin" / "fairseq-posenc"), word)
        assert (finished.returncode, finished.stderr) == (0, "") and expected in finished.stdout
    assert (target / "fairseq_posenc" / "py.typed").is_file()
    assert (target / "share" / "doc" / "fairseq_posenc" / "CITATION.cff").is_file()
    packing = "from setuptools import build_meta as b; b.build_sdist('..')"
    subprocess.run([sys.executable, "-c", packing], cwd=source, check=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        kept = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "CITATION.cff", "docs/index.md", "examples/README.md"} <= kept


# --- standard input and output


@pytest.mark.parametrize("stream, opened", [("stdin", standard_input), ("stdout", standard_output)])
def test_a_closed_stream_is_one_line(monkeypatch, stream, opened):
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(UsageError, match="standard (in|out)put: is closed; give a file"):
        opened()
    with printing():  # a command that prints nothing needs no stream
        pass


def test_what_the_locale_does_not_have_is_printed_all_the_same(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with printing():
        print("10³ tokens")
    assert written.getvalue() == b"10\\xb3 tokens\n"
