"""The scripts of the recipes are short, stand alone, and resume as if not interrupted."""

import shutil
import subprocess

import pytest
from support.commands import ROOT

SCRIPTS = [*ROOT.glob("examples/*/*.sh"), *ROOT.glob("examples/*/*.sbatch")]
TEXTS = {f"{path.parent.name}/{path.name}": path.read_text(encoding="utf-8") for path in SCRIPTS}
del TEXTS["study/commands.sh"]  # a part of the Snakefile


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_recipe_is_short_and_stands_alone(name):
    text = TEXTS[name]
    assert len(text.splitlines()) <= 80 and "\nset -euo pipefail\n" in text
    assert "\n. " not in text and "\nsource " not in text
    code = "\n".join(line for line in text.split("\n") if not line.startswith("#"))
    for command in code.split("fairseq-train ")[1:]:
        command = command.replace("\\\n", " ").partition("\n")[0]
        assert "--update-epoch-batch-itr True" in command and '"${@:' in command


def test_shellcheck_has_nothing_to_say():
    if not shutil.which("shellcheck"):
        pytest.skip("an extra: shellcheck is not installed")
    done = subprocess.run(["shellcheck", *map(str, SCRIPTS)], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout
