"""Check that the package works with the packs that it has, and print all registered names as JSON.

This is a script for a new process whose PYTHONPATH begins with the folder of the package.
"""

import argparse
import contextlib
import io
import json

import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from golden import earlier
from support import quick_hydra
from support.helpers import own_criterion

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.basics.packages import load
from fairseq_posenc.cli import commands, main
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.exchange import FORMATS, export_flags
from fairseq_posenc.layers.heads import HEADS, PRETRAINING
from fairseq_posenc.models import FAMILIES


def listed():
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main(["list"])
    return printed.getvalue()


def check_families():
    """Complete every preset, and build and run one small preset of each family."""
    for family in FAMILIES.values():
        task, needed = family.tasks[0], {"criterion": family.criterion, "langs": "de,en"}
        for name in family.presets:
            ARCH_CONFIG_REGISTRY[name](argparse.Namespace(task=task, **needed))
        for name in [name for name in family.presets if name.endswith("_tiny")][:1]:
            model = earlier.build(name, " ".join(["--task", task, *own_criterion(family)]))
            assert torch.isfinite(earlier.outputs_of(model)).all(), name


def registered():
    load("exchange")
    flags = {name for family in FAMILIES.values() for name in family.dataclass.__dataclass_fields__}
    configs = [*TASK_DATACLASS_REGISTRY.values(), *CRITERION_DATACLASS_REGISTRY.values()]
    parts = [*HEADS, *(name.split(".")[-1] for name in PRETRAINING)]
    # single words are also names of ordinary variables, and translate has a flag --n-best
    parts += [name for each in configs if each for name in each.__dataclass_fields__]
    flags.update(name for name in parts if "_" in name and name != "n_best")
    found = {*ATTENTIONS, *ENCODINGS, *FORMATS, *ARCH_MODEL_REGISTRY, *TASK_REGISTRY, *flags}
    # commands of a single word are also names of ordinary variables
    named = [flag.name for flag in export_flags()] + [c.name for c in commands() if "-" in c.name]
    named = {name.replace("-", "_") for name in named}
    return sorted({*found, *CRITERION_REGISTRY, *named})


if __name__ == "__main__":
    quick_hydra.remember()
    lines = listed()
    assert all(f"  {name} " in lines for name in [*ENCODINGS, *ATTENTIONS])
    check_families()
    print(json.dumps(registered()))
