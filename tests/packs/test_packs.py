"""Each pack can be deleted: what is left works, and names nothing that the pack registers."""

import ast
import json
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fairseq_posenc
from fairseq_posenc import packs

PACKAGE = Path(fairseq_posenc.__file__).parent
PACKS = [module.name for module in pkgutil.iter_modules(packs.__path__)]
#: Prints all names in the registries, after a model of each family was built and run.
SCRIPT = """
import argparse, json, os, sys
import torch
from fairseq import options, utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary
from fairseq.tasks import TASK_REGISTRY
utils.import_user_module(argparse.Namespace(user_dir=os.path.join(sys.argv[1], "fairseq_posenc")))
from fairseq.models import ARCH_MODEL_REGISTRY, build_model
from support.helpers import TINY, TranslationTask
from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.basics.packs import load
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.models import FAMILIES
load("exchange")
from fairseq_posenc.cli import get_parser
from fairseq_posenc.exchange.shipped import FORMATS, export_flags
get_parser()
for flags in ([], ["--position-encoding", "rotary"], ["--attention", "favor"]):
    words = ["data", "--task", "translation", "--arch", "posenc_transformer", *TINY, *flags]
    model = build_model(options.parse_args_and_arch(options.get_training_parser(), words),
                        TranslationTask()).eval()
    tokens = torch.arange(5, 11).view(2, 3)
    assert torch.isfinite(model(tokens, None, tokens)[0]).all()
flags = {name for family in FAMILIES.values() for name in family.dataclass.__dataclass_fields__}
found = {*ATTENTIONS, *ENCODINGS, *FORMATS, *ARCH_MODEL_REGISTRY, *TASK_REGISTRY, *flags}
print(json.dumps(sorted({*found, *CRITERION_REGISTRY, *(flag.name for flag in export_flags())})))
"""


def names(folder):
    """What is registered with the package in a folder."""
    paths = [str(folder), str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def words(file):
    """The string literals, attributes and variables of a module, flags without their dashes."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.lstrip("-").replace("-", "_")
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


@pytest.fixture(scope="module")
def all_names():
    """What is registered with every pack."""
    return names(PACKAGE.parent)


@pytest.mark.parametrize("pack", PACKS)
def test_a_pack_can_be_deleted(pack, all_names, tmp_path):
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "fairseq_posenc", ignore=left_out)
    shutil.rmtree(tmp_path / "fairseq_posenc" / "packs" / pack)
    gone = all_names - names(tmp_path)
    assert gone, f"{pack} registers nothing"
    for file in (tmp_path / "fairseq_posenc").rglob("*.py"):
        named = gone & set(words(file))
        assert not named, f"{file.relative_to(tmp_path)} names {named} of the pack {pack}"
