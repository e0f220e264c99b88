"""Trainings of the documentation that are resumed end as if they had not been interrupted."""

import re

from support.commands import ROOT
from support.recipes import EXAMPLES


def test_every_training_of_the_documentation_resumes_that_way():
    found = 0
    for path in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *EXAMPLES.glob("*/*.md")]:
        for block in re.findall(r"```bash\n(.*?)```", path.read_text(), re.DOTALL):
            for command in re.findall(r"^fairseq-train(?:.*\\\n)*.*", block, re.MULTILINE):
                if "--max-" in command or "$TRAIN" in command:  # the others are incomplete
                    found += 1
                    settings = command + block if "$TRAIN" in command else command
                    assert "--update-epoch-batch-itr True" in settings, f"{path}: {command}"
    assert found >= 9
