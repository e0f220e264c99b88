"""Settings that fairseq evaluates are never run as code; paths of the plug-in in --user-dir."""

import re
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from fairseq import utils
from fairseq.models import transformer_lm
from fairseq.utils import eval_bool, eval_str_dict, eval_str_list
from support.commands import ROOT

import fairseq_posenc
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.compat.settings import value_of

pytestmark = pytest.mark.refusals

PACKAGE = ROOT / "fairseq_posenc"
EVALUATES = re.compile(r"(?<![\w.])eval\(")


@pytest.mark.parametrize(
    "text",
    [
        "[(512, 3)] * 20",
        "[(512,10,5)] + [(512,3,2)] * 4 + [(512,2,2)]",
        "(0.9, 0.98)",
        "{'a': [1, None], 'b': 'c'}",
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
    # settings that are no text are not evaluated
    assert [eval_bool(x, "default") for x in ("True", "0", True, None)] == [
        True, False, "default", "default"
    ]  # fmt: skip


# --user-dir


def import_plugin(path):
    utils.import_user_module(Namespace(user_dir=str(path)))


def test_the_imported_plugin_may_be_given_by_any_path(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    models = len(fairseq_posenc.models.__dict__)
    (tmp_path / "fairseq_posenc").symlink_to(PACKAGE)
    (tmp_path / "by_another_name").symlink_to(PACKAGE)
    monkeypatch.chdir(PACKAGE.parent)
    for path in (
        *(PACKAGE, f"{PACKAGE}/", "fairseq_posenc", "./fairseq_posenc/", f"{PACKAGE}/models/.."),
        *(tmp_path / "fairseq_posenc", f"{tmp_path}/fairseq_posenc/", tmp_path / "by_another_name"),
    ):
        import_plugin(path)
    assert len(fairseq_posenc.models.__dict__) == models and "by_another_name" not in sys.modules
    assert caplog.text == ""


def test_another_copy_is_refused_by_both_names(tmp_path):
    other = tmp_path / "fairseq_posenc"
    other.mkdir()
    (other / "__init__.py").write_text("raise AssertionError('imported')\n")
    for path in (other, f"{other}/"):
        with pytest.raises(UsageError) as error:
            import_plugin(path)
        assert str(other) in str(error.value) and str(PACKAGE) in str(error.value)
