"""The scripts of the recipes are short, stand alone, and resume as if not interrupted."""

import ast
import re

import pytest
from support.commands import ROOT
from support.recipes import EXAMPLES, recipe_module

pytestmark = pytest.mark.properties

SCRIPTS = [*ROOT.glob("examples/*/*.sh"), *ROOT.glob("examples/*/*.sbatch")]
TEXTS = {f"{path.parent.name}/{path.name}": path.read_text(encoding="utf-8") for path in SCRIPTS}
del TEXTS["study/commands.sh"]  # a part of the Snakefile


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_recipe_is_short_and_stands_alone(name):
    text = TEXTS[name]
    assert len(text.splitlines()) <= 80
    assert "\n. " not in text and "\nsource " not in text
    code = "\n".join(line for line in text.split("\n") if not line.startswith("#"))
    for command in code.split("fairseq-train ")[1:]:
        command = command.replace("\\\n", " ").partition("\n")[0]
        assert "--update-epoch-batch-itr True" in command and '"${@:' in command


def test_every_training_of_the_documentation_resumes_that_way():
    found = 0
    for path in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")]:
        for block in re.findall(r"```bash\n(.*?)```", path.read_text(), re.DOTALL):
            for command in re.findall(r"^fairseq-train(?:.*\\\n)*.*", block, re.MULTILINE):
                if "--max-" in command or "$TRAIN" in command:  # the others are incomplete
                    found += 1
                    settings = command + block if "$TRAIN" in command else command
                    assert "--update-epoch-batch-itr True" in settings, f"{path}: {command}"
    assert found >= 9


FILES = sorted(path for path in EXAMPLES.glob("*/*.py") if not path.is_symlink())
MODULES = {path.stem for path in EXAMPLES.glob("*/*.py")}


def imported(path):
    """Names of the modules of recipes that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found & MODULES


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_all_imported_modules_are_there(path):
    places = (path.parent, EXAMPLES / "common")
    for name in imported(path):
        assert any((place / f"{name}.py").is_file() for place in places), name


@pytest.mark.parametrize(
    "words", ["texts one two", "pairs one two", "lengths 2 one", "vocabulary dict one"]
)
def test_texts_that_are_whole_pass(tmp_path, words, monkeypatch):
    (tmp_path / "one").write_bytes(b"a b\nc\n")
    (tmp_path / "two").write_bytes("x\r\n\u2028y\r\n".encode())
    (tmp_path / "dict").write_bytes(b"a 1\nb 1\nc 1 #fairseq:overwrite\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["check.py", *words.split()])
    recipe_module("common", "check").main()
