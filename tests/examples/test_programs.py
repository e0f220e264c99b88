"""Programs and scripts of the recipes: data they write, mistakes they refuse, and their style."""

import codecs
import re
import runpy
import shutil
import sys

import pytest
from support.commands import ROOT
from support.lists import rows_of
from support.recipes import EXAMPLES, bash, write

pytestmark = pytest.mark.refusals
NAMES = ("news-commentary-v14.de-en.tsv.gz", "2017-01-trnmted.tgz", "contrapro.json")
ROWS = rows_of("mistakes.txt")
SCRIPTS = [row for row in ROWS if ".sh " in row[0]]
PROGRAMS = [row for row in ROWS if ".py " in row[0]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small texts, archives with wrong content, and a folder made with other settings."""
    root = tmp_path_factory.mktemp("mistakes")
    for name in ("texts", "raw", "made", "model"):
        (root / name).mkdir()
    for split in ("train", "valid", "test", "short"):
        for ending in ("txt", "en", "de"):
            lines = ["A cat.", "A dog."] + ["A cow."] * ((split, ending) == ("short", "de"))
            write(root / "texts" / f"{split}.{ending}", lines)
    for split in ("train", "dev"):
        write(root / "texts" / f"{split}.tsv", ["sentence\tlabel", "a\t1", "b\t0"])
        (root / "texts" / f"{split}.json").write_text("[]")
    for name in NAMES:
        write(root / "raw" / name, ["something else"])
    write(root / "raw" / "training-parallel-europarl-v7.tgz", ["something else"])
    write(root / "raw" / "list", [f"sha256sum {'0' * 64} training-parallel-europarl-v7.tgz -"])
    write(root / "model" / "dict.txt", ["cat 1"])
    write(root / "made" / "settings", ["made by another command"])
    return root


@pytest.mark.parametrize("command, pattern", SCRIPTS, ids=[row[0] for row in SCRIPTS])
def test_mistakes_of_a_script(command, pattern, folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    words = command.split()
    variables = dict(word.split("=") for word in words if re.match("[A-Z_]+=", word))
    script, *given = words[len(variables) :]
    refused = bash(EXAMPLES / script, *given, cwd=tmp_path, **{"WORKERS": "1", **variables})
    said = refused.stderr
    assert refused.returncode == 1 and re.search(pattern, said, re.DOTALL), said
    assert "Traceback" not in said and not (tmp_path / "out" / "data-bin").exists()


def run_program(command, files, folder, monkeypatch):
    """Write *files* (``NAME: CONTENT``) to *folder*, and run a recipe's Python program there."""
    for file in files:
        name, _, content = file.partition(": ")
        for split in ("train", "dev", "val", "test") if "{}" in name else ("",):
            place = folder / name.replace("{}", split)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(read(content))
    script, *words = command.split()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [script, *words])
    for place in (EXAMPLES / "common", (EXAMPLES / script).parent):
        monkeypatch.syspath_prepend(place)
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")


def read(content):
    """The bytes of *content*, with escapes for a line feed (\\n), a tab (\\t) or a byte (\\x1f)."""
    if "\\x" in content:
        return codecs.decode(content, "unicode_escape").encode("latin-1")
    return content.replace("\\n", "\n").replace("\\t", "\t").encode()


@pytest.mark.parametrize("command, pattern, files", [(c, p, f) for c, p, *f in PROGRAMS])
def test_mistakes_of_a_program(command, pattern, files, tmp_path, monkeypatch):
    with pytest.raises((SystemExit, ValueError)) as caught:
        run_program(command, files, tmp_path, monkeypatch)
    assert re.search(pattern, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value) or "parallel.py tsv" in pattern
    assert not (tmp_path / "out.en").exists()


@pytest.mark.parametrize("command, files", [(c, f) for c, *f in rows_of("published.txt")])
def test_published_files_become_data(command, files, tmp_path, monkeypatch):
    run_program(command, [one for one in files if one[0] not in "=~"], tmp_path, monkeypatch)
    for kind, name, content in (
        re.split(" |: ", one, maxsplit=2) for one in files if one[0] in "=~"
    ):
        found = (tmp_path / name).read_bytes()
        if kind == "=":
            assert found == read(content), name
        else:
            assert re.search(content, found.decode()), name


# --- scripts are short, stand alone, and resume


SHELL = [*ROOT.glob("examples/*/*.sh"), *ROOT.glob("examples/*/*.sbatch")]
TEXTS = {f"{path.parent.name}/{path.name}": path.read_text(encoding="utf-8") for path in SHELL}
del TEXTS["study/commands.sh"]  # belongs to the Snakefile


@pytest.mark.parametrize("name", sorted(TEXTS))
@pytest.mark.properties
def test_a_recipe_is_short_and_stands_alone(name):
    text = TEXTS[name]
    assert len(text.splitlines()) <= 80
    assert "\n. " not in text and "\nsource " not in text
    code = "\n".join(line for line in text.split("\n") if not line.startswith("#"))
    for command in code.split("fairseq-train ")[1:]:
        command = command.replace("\\\n", " ").partition("\n")[0]
        assert "--update-epoch-batch-itr True" in command and '"${@:' in command


@pytest.mark.properties
def test_every_training_of_the_documentation_resumes_that_way():
    found = 0
    for path in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")]:
        for block in re.findall(r"```bash\n(.*?)```", path.read_text(), re.DOTALL):
            for command in re.findall(r"^fairseq-train(?:.*\\\n)*.*", block, re.MULTILINE):
                if "--max-" in command or "$TRAIN" in command:  # other commands are incomplete
                    found += 1
                    settings = command + block if "$TRAIN" in command else command
                    assert "--update-epoch-batch-itr True" in settings, f"{path}: {command}"
    assert found >= 9
