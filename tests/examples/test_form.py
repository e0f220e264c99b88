"""The scripts of the recipes are short, stand alone, and resume as if not interrupted."""

import re

import pytest
from support.commands import ROOT

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
