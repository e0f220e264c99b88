"""The modules of the toy corpus in examples/toy."""

import importlib
from pathlib import Path

import pytest

TOY = Path(__file__).resolve().parents[2] / "examples" / "toy"


def module(name):
    """A module of the toy corpus, imported as when Python runs corpus.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOY)
        return importlib.import_module(name)


toy, grammar, inflection, lexicon = map(module, "corpus grammar inflection lexicon".split())
Clause, NounPhrase = grammar.Clause, grammar.NounPhrase
Pronoun, Sentence = grammar.Pronoun, grammar.Sentence
ADJECTIVES, ADVERBS = lexicon.ADJECTIVES, lexicon.ADVERBS
NOUNS, VERBS = lexicon.NOUNS, lexicon.VERBS
conjugate_german = inflection.conjugate_german
