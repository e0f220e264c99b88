"""The worked examples in the docstrings of the package run and are right."""

import doctest
import importlib
import pkgutil

from support.own_extensions import registries_as_before

import fairseq_posenc
from fairseq_posenc.basics.packages import EXTRAS

OPTIONAL = {extra.module for extra in EXTRAS}
LEAST = 10  # examples that have to be found


def modules():
    """Every module of the package, except those whose optional packages are not installed."""
    found = [fairseq_posenc]
    for info in pkgutil.walk_packages(fairseq_posenc.__path__, "fairseq_posenc."):
        if info.name == "fairseq_posenc.__main__":
            continue
        try:
            found.append(importlib.import_module(info.name))
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in OPTIONAL:
                raise
    return found


def examples(module):
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(module) if test.examples]


def test_examples_of_docstrings():
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    reports, named = [], set()
    with registries_as_before():  # an example of ``register_encoding`` adds an encoding
        for module in modules():
            for test in examples(module):
                named.add(test.name)
                runner.run(test, out=reports.append)
    assert not runner.summarize(verbose=False).failed, "".join(reports)
    assert len(named) >= LEAST, sorted(named)
