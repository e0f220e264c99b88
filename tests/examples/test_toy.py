"""The toy corpora: German against manual translations; choices depend on earlier sentences."""

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from support.recipes import EXAMPLES, recipe_module

pytestmark = pytest.mark.formulas

grammar, lexicon = (recipe_module("toy", name) for name in ("grammar", "lexicon"))
Clause, NounPhrase = grammar.Clause, grammar.NounPhrase
Pronoun, Sentence = grammar.Pronoun, grammar.Sentence
ADJECTIVES, ADVERBS = lexicon.ADJECTIVES, lexicon.ADVERBS
NOUNS, VERBS = lexicon.NOUNS, lexicon.VERBS
HE, THEY, I = (  # noqa: E741
    Pronoun(2, "he him", "er ihn ihm"),
    Pronoun(4, "they them", "sie sie ihnen"),
    Pronoun(0, "I me", "ich mich mir"),
)
WOMAN, DOCTOR, BOOK = (NounPhrase(NOUNS[n]) for n in ("woman", "doctor", "book"))
CALL = Clause(WOMAN, VERBS["call"], accusative=DOCTOR)
BUY = Clause(HE, VERBS["buy"], accusative=BOOK)
BY_HAND = [
    (
        Sentence(CALL._replace(time=ADVERBS["today"], front="time", negated=True)),
        "Today the woman does not call the doctor.",
        "Heute ruft die Frau den Arzt nicht an.",
    ),
    (
        Sentence(CALL, "because", BUY._replace(tense="past")),
        "The woman calls the doctor because he bought the book.",
        "Die Frau ruft den Arzt an, weil er das Buch gekauft hat.",
    ),
    (
        Sentence(CALL, "if", BUY._replace(tense="have to"), subordinate_first=True),
        "If he has to buy the book, the woman calls the doctor.",
        "Wenn er das Buch kaufen muss, ruft die Frau den Arzt an.",
    ),
    (
        Sentence(BUY._replace(negated=True, accusative=replace(BOOK, determiner="a"))),
        "He does not buy a book.",
        "Er kauft kein Buch.",
    ),
    (
        Sentence(Clause(THEY, VERBS["follow"], "past", dative=I, time=ADVERBS["yesterday"])),
        "They followed me yesterday.",
        "Sie sind mir gestern gefolgt.",
    ),
    (
        Sentence(
            Clause(
                NounPhrase(NOUNS["child"], True, "my", ADJECTIVES["young"]),
                VERBS["give"],
                dative=NounPhrase(NOUNS["teacher"], True),
                accusative=NounPhrase(NOUNS["apple"], False, "a", ADJECTIVES["old"]),
            )
        ),
        "My young children give the teachers an old apple.",
        "Meine jungen Kinder geben den Lehrern einen alten Apfel.",
    ),
]


@pytest.mark.parametrize(("sentence", "english", "german"), BY_HAND, ids=[b[1] for b in BY_HAND])
def test_translations_by_hand(sentence, english, german):
    assert sentence.pair() == (english, german)


def run_script(*arguments):
    command = [sys.executable, str(EXAMPLES / "toy" / "corpus.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_files_have_the_sizes_asked_for_and_share_no_sentence(tmp_path):
    result = run_script(tmp_path / "a", "--train", 400, "--valid", 50, "--test", 60)
    assert (result.returncode, result.stderr) == (0, "")
    assert run_script(tmp_path / "b", "--train", 400, "--valid", 50, "--test", 60).returncode == 0
    seen = set()
    for split, size in (("train", 400), ("valid", 50), ("test", 60)):
        for language in ("en", "de"):
            file = tmp_path / "a" / f"{split}.{language}"
            assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
            lines = file.read_text(encoding="utf-8").splitlines()
            assert len(lines) == len(set(lines)) == size
            assert not seen & set(lines)
            seen |= set(lines)
    assert len(list((tmp_path / "a").iterdir())) == 6


# --- documents

paragraphs = recipe_module("toy", "paragraphs")
NOUN_GENDER = {  # German genders
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
    for kind, counts in decided.items():  # all answers are equally frequent
        assert len(set(counts.values())) == 1, (kind, counts)
        assert len(counts) == round(100 / bounds[kind])
