"""Flags that cannot work are refused in one line, before data or a checkpoint is read.

A line of refusals.txt has an architecture with its flags, and a pattern of the message.  Flags are
refused when they are read or, if the line begins with ``build``, when the model is built.  The
first word may also be the name of a command, followed by flags of this command.
"""

import re
import shlex
import sys

import pytest
from fairseq import models, options
from support.commands import shape
from support.helpers import TINY, model_settings, own_criterion, task_of
from support.lists import rows_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.models import family_of

pytestmark = pytest.mark.refusals
TEXT = ["--tokens-per-sample", "64"]
#: For each family's usual task, flags that are added to lines with its general architecture.
USUAL = {
    "translation": TINY,
    "multilingual_translation": TINY,
    "language_modeling": [*shape(2, 32, 48, 4, "decoder"), *TEXT],
    "masked_lm": ["--encoder-embed-dim", "48", *TEXT],
}


#: The functions that build the parsers of commands.
PARSERS = {
    "train": options.get_training_parser,
    "generate": options.get_generation_parser,
    "interactive": options.get_interactive_generation_parser,
    "validate": options.get_validation_parser,
    "eval-lm": options.get_eval_lm_parser,
}


def configure(arch, flags):
    """Read the flags of an architecture; returns the settings of its model, and its task."""
    family = family_of(arch)
    task, sizes = family.tasks[0], USUAL[family.tasks[0]]
    task = flags[flags.index("--task") + 1] if "--task" in flags else task
    flags = [*own_criterion(family), *(sizes if arch == family.model else []), *flags]
    return model_settings(arch, *flags, task=task), task_of(task)


@pytest.mark.parametrize("words, pattern", rows_of("refusals.txt"))
def test_what_cannot_work_is_refused_by_name(words, pattern, monkeypatch):
    first, *flags = (word for word in shlex.split(words) if word != "build")
    monkeypatch.setattr(sys, "argv", [f"fairseq-{first}", "data", *flags])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # commands replace the hook
    with pytest.raises(UsageError, match=pattern) as error:
        if first in PARSERS:
            options.parse_args_and_arch(PARSERS[first]())
        else:
            given, task = configure(first, flags)
            assert words.startswith("build "), "is not refused when the flags are read"
            models.build_model(given, task)
    assert "\n" not in str(error.value)
    named = re.findall(r"--arch (\w+)", str(error.value))
    # suggested architectures must exist
    assert set(named) <= {*models.ARCH_MODEL_REGISTRY, *flags}
