"""Settings that fairseq evaluates: values as before, and no code, wherever fairseq does so."""

import re
import sys
from pathlib import Path

import pytest
from fairseq.models import transformer_lm
from fairseq.utils import eval_bool, eval_str_dict, eval_str_list

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.compat.settings import value_of

EVALUATES = re.compile(r"(?<![\w.])eval\(")


@pytest.mark.parametrize(
    "text",
    [
        "[(512, 3)] * 20",
        "[(512,10,5)] + [(512,3,2)] * 4 + [(512,2,2)]",
        "3 * ((1, 2),)",
        "(0.9, 0.98)",
        "{'a': [1, None], 'b': 'c'}",
        "True",
        " -1e-4 / 2 ",
        "[[1, 64], [2, 128]]",
    ],
)
def test_values_are_those_of_python(text):
    assert value_of(text) == eval(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd()",
        "[x for x in (1,)]",
        "(lambda: 1)()",
        "().__class__",
        "print",
        "[0] * 10 ** 10",
        "[0] * 99999 * 99999",
        "'a' * 99999",
        "1 +",
        "1 / 0",
    ],
)
def test_code_is_refused(text):
    with pytest.raises(UsageError, match="settings are not run as code"):
        value_of(text)


def test_the_models_of_fairseq_evaluate_values_alone():
    found = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith("fairseq.models.") and str(module.__file__).endswith(".py"):
            if EVALUATES.search(Path(module.__file__).read_text(encoding="utf-8")):
                found.append(name)
                assert module.eval is value_of, name
    assert "fairseq.models.transformer_lm" in found and len(found) > 5
    assert transformer_lm.eval is value_of
    assert eval_str_list("[0.1, 2]") == [0.1, 2.0] and eval_str_list("3", int) == [3]
    assert eval_str_dict("{'a': 1}") == {"a": 1}
    # what is a value already is not evaluated
    assert [eval_bool(x, "default") for x in ("True", "0", True, None)] == [
        True, False, "default", "default"
    ]  # fmt: skip
