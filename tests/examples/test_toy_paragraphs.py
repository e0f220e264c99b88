"""Documents of the toy grammar: what decides a sentence is before it, and cannot be guessed."""

import json
import re
from collections import Counter

import pytest
from support.toy_grammar import module

paragraphs = module("paragraphs")
NOUN_GENDER = {  # as a grammar book has them
    "m": "Brief Schlüssel Stuhl Mantel Apfel",
    "f": "Zeitung Tasche Lampe Blume",
    "n": "Buch Bild Fahrrad Hemd Radio",
}
GENDER = {noun: gender for gender, nouns in NOUN_GENDER.items() for noun in nouns.split()}
PRONOUNS = {"m": {"er", "ihn"}, "f": {"sie"}, "n": {"es"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("paragraphs")
    sizes = ["--train", "150", "--valid", "10", "--test", "10", "--choices", "9"]
    paragraphs.main([str(out), *sizes])
    return out


def documents_of(folder, name):
    sides = [
        (folder / f"{name}.{lang}").read_text("utf-8").split("\n\n")[:-1] for lang in ("en", "de")
    ]
    return [list(zip(one.splitlines(), two.splitlines())) for one, two in zip(*sides)]


def things(sentence):
    return [word for word in re.findall(r"\w+", sentence) if word in GENDER]


def test_documents_are_parallel_and_of_the_length_that_is_said(folder):
    documents = documents_of(folder, "train")
    assert len(documents) == 150
    lengths = [len(document) for document in documents]
    assert min(lengths) >= 4 and max(lengths) <= 8 + paragraphs.NEAR + 1
    assert all(english and german for document in documents for english, german in document)
    everything = [
        tuple(each) for name in ("train", "valid", "test") for each in documents_of(folder, name)
    ]
    assert len(set(everything)) == len(everything)


def test_german_agrees_with_what_was_said_before(folder):
    """Pronouns and adjectives have the last thing's gender, and participles repeat the last one."""
    counts = Counter()
    for document in documents_of(folder, "train"):
        gender = participle = None
        for english, german in document:
            words = re.findall(r"\w+", german.lower())
            if english.endswith("did, too."):
                assert words[-1] == participle
                counts["did"] += 1
            elif re.search(r"\b[Ii]t\b", english):
                assert PRONOUNS[gender] & set(words), (english, german)
                counts["it"] += 1
            elif re.search(r"\bone\b", english):
                endings = {"m": ("en",), "f": ("e",), "n": ("es", "e")}[gender]
                adjective = next(
                    a.german
                    for a in paragraphs.ADJECTIVES.values()
                    if english.split()[-2] == a.english
                )
                assert any(adjective + ending in words for ending in endings), (english, german)
                counts["one"] += 1
            elif things(german):
                gender = GENDER[things(german)[-1]]
            elif re.search(r"\b(hat|ist) \w+\.$", german):
                participle = words[-1]
    assert min(counts[kind] for kind in paragraphs.KINDS) > 50


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
        decided.setdefault(kind, Counter())[answer] += 1
    assert set(by_kind.values()) == {9} and len(by_kind) == 3 * paragraphs.FAR
    for kind, counts in decided.items():  # each answer as often as the others
        assert len(set(counts.values())) == 1, (kind, counts)
        assert len(counts) == round(100 / bounds[kind])


def test_equal_seeds_give_equal_files(folder, tmp_path):
    paragraphs.main(
        [str(tmp_path), "--train", "150", "--valid", "10", "--test", "10", "--choices", "9"]
    )
    for path in folder.rglob("*.*"):
        assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes()
