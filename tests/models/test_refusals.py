"""Flags of models that cannot work: each is refused in one line, before anything is trained.

Each line of refusals.txt is an architecture with its flags, and a pattern of the message.  Before
some stands ``build``: those are refused when the model is built, others when the flags are read.
"""

import re
import shlex
from argparse import Namespace

import pytest
from fairseq import models
from support.commands import shape
from support.helpers import TINY, VOCABULARY, model_settings, own_criterion
from support.lists import rows_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.models import family_of

pytestmark = pytest.mark.refusals

CASES = rows_of("refusals.txt")
TEXT = ["--tokens-per-sample", "64"]
#: By the usual task of a family, flags of its general architecture, before those of a line.
USUAL = {
    "translation": TINY,
    "multilingual_translation": TINY,
    "language_modeling": [*shape(2, 32, 48, 4, "decoder"), *TEXT],
    "masked_lm": ["--encoder-embed-dim", "48", *TEXT],
}


@pytest.mark.parametrize("words, pattern", CASES)
def test_what_cannot_work_is_refused_by_name(words, pattern):
    arch, *flags = (word for word in shlex.split(words) if word != "build")
    family = family_of(arch)
    task, sizes = family.tasks[0], USUAL[family.tasks[0]]
    task = flags[flags.index("--task") + 1] if "--task" in flags else task
    flags = [*own_criterion(family), *(sizes if arch == family.model else []), *flags]
    settings = Namespace(_name=task, tokens_per_sample=64)
    known = {"source_dictionary": VOCABULARY, "target_dictionary": VOCABULARY}
    with pytest.raises(UsageError, match=pattern) as error:
        given = model_settings(arch, *flags, task=task)
        assert words.startswith("build "), "is not refused when the flags are read"
        models.build_model(given, Namespace(cfg=settings, args=settings, **known))
    assert "\n" not in str(error.value)
    named = re.findall(r"--arch (\w+)", str(error.value))
    assert set(named) <= set(models.ARCH_MODEL_REGISTRY)  # what to give instead
