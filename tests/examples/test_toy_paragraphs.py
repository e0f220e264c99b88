"""Documents of the toy grammar: what decides a sentence is before it, and cannot be guessed."""

import json
import re
from collections import Counter

import pytest
from support.recipes import recipe_module

paragraphs = recipe_module("toy", "paragraphs")
NOUN_GENDER = {  # as a grammar book has them
    "m": "Brief Schlüssel Stuhl Mantel Apfel",
    "f": "Zeitung Tasche Lampe Blume",
    "n": "Buch Bild Fahrrad Hemd Radio",
}
GENDER = {noun: gender for gender, nouns in NOUN_GENDER.items() for noun in nouns.split()}
SIZES = ["--train", "150", "--valid", "10", "--test", "10", "--choices", "9"]
PRONOUNS = {"m": {"er", "ihn"}, "f": {"sie"}, "n": {"es"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("paragraphs")
    paragraphs.main([str(out), *SIZES])
    return out


def things(sentence):
    return [word for word in re.findall(r"\w+", sentence) if word in GENDER]


def test_documents_are_parallel_and_none_occurs_twice(folder):
    everything = []
    for name, size in (("train", 150), ("valid", 10), ("test", 10)):
        english, german = (
            (folder / f"{name}.{lang}").read_text("utf-8").split("\n\n")[:-1]
            for lang in ("en", "de")
        )
        assert len(english) == len(german) == size
        assert all(one.count("\n") == two.count("\n") for one, two in zip(english, german))
        everything += zip(english, german)
    assert len(set(everything)) == len(everything)


def test_choices_cannot_be_decided_by_the_sentence(folder):
    choices = json.loads((folder / "choices.json").read_text("utf-8"))
    bounds = json.loads((folder / "bounds.json").read_text("utf-8"))
    lines = (folder / "documents" / "choices.de").read_text("utf-8").split("\n")
    sources = (folder / "documents" / "choices.en").read_text("utf-8").split("\n")
    by_kind = Counter()
    decided = {}
    for choice in choices:
        place, kind = choice["segment id"] - 1, choice["src pronoun"]
        assert lines[place] == choice["ref segment"] and sources[place] == choice["src segment"]
        start = place - choice["ante distance"]
        assert (not start or not lines[start - 1]) and all(lines[start:place])
        between = lines[start + 1 : place]
        assert not any(map(things, between)) and not any(
            re.search(r" (hat|ist) \w+\.$", line) for line in between
        )
        variants = [choice["ref segment"], *(error["contrastive"] for error in choice["errors"])]
        assert len(set(variants)) == len(variants)
        assert bounds[kind] == pytest.approx(100 / len(variants))
        by_kind[kind, choice["ante distance"]] += 1
        answer = GENDER[things(lines[start])[-1]] if kind != "did" else lines[start].split()[-1]
        words = choice["ref segment"].lower().rstrip(".").split()
        assert kind != "it" or PRONOUNS[answer] & set(words), choice
        assert kind != "did" or words[-1] == answer.rstrip("."), choice
        decided.setdefault(kind, Counter())[answer] += 1
    assert set(by_kind.values()) == {9} and len(by_kind) == 3 * paragraphs.FAR
    for kind, counts in decided.items():  # each answer as often as the others
        assert len(set(counts.values())) == 1, (kind, counts)
        assert len(counts) == round(100 / bounds[kind])


def test_equal_seeds_give_equal_files(folder, tmp_path):
    paragraphs.main([str(tmp_path), *SIZES])
    for path in folder.rglob("*.*"):
        assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes()
