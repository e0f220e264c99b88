"""The toy corpus: word order and agreement of the sentences that it draws."""

import re

import pytest
from support.toy_grammar import ADVERBS, VERBS, conjugate_german, toy

AUXILIARIES = set(
    "bin bist ist sind war warst waren habe hast hat haben kann kannst können soll sollst sollen "
    "werde wirst wird werden darf darfst dürfen will willst wollen muss musst müssen".split()
)
PREFIXES = set("an auf zu ab ein mit zurück".split())
SUBORDINATING = ("dass", "weil", "wenn")


@pytest.fixture(scope="module")
def pairs():
    return toy.draw_pairs(6000, seed=11)


@pytest.fixture(scope="module")
def finite_forms():
    """Every present form that a clause of the lexicon's full verbs can have."""
    return {
        conjugate_german(verb.german, person, verb.changed_stem)
        for verb in VERBS.values()
        for person in range(5)
    } | AUXILIARIES


def clauses(sentence):
    """Split a sentence into (subordinating word or "", words of the clause)."""
    for part in re.split(r", ", sentence.rstrip(".")):
        words = part.split()
        words[0] = words[0][0].lower() + words[0][1:]
        head = words[0] if words[0] in SUBORDINATING else ""
        yield head, words[1:] if head else words


def test_no_sentence_has_two_translations_and_none_occurs_twice(pairs):
    more = toy.draw_pairs(6000, seed=12)
    german = dict(pairs)
    assert all(german.get(source, target) == target for source, target in more)
    assert len({source for source, _ in pairs}) == len({target for _, target in pairs}) == 6000
    assert sum(source in german for source, _ in more) < 2000  # seeds differ


def test_equal_seeds_draw_equal_pairs():
    assert toy.draw_pairs(300, seed=5) == toy.draw_pairs(300, seed=5)
    assert toy.draw_pairs(300, seed=5) != toy.draw_pairs(300, seed=6)


def finite_position(words, finite_forms):
    return [i for i, word in enumerate(words) if word in finite_forms]


def test_verb_is_final_in_subordinate_clauses(pairs, finite_forms):
    seen = dict.fromkeys(SUBORDINATING, 0)
    joined = {prefix + form for prefix in PREFIXES for form in finite_forms - AUXILIARIES}
    for _, german in pairs:
        for head, words in clauses(german):
            if head:
                seen[head] += 1
                assert words[-1] in finite_forms | joined, german
                assert words[-1] not in PREFIXES, german
    assert min(seen.values()) > 300


def test_verb_is_second_in_main_clauses_and_first_after_a_clause(pairs, finite_forms):
    """Before the finite verb stands one constituent: a pronoun, one noun phrase, one adverbial."""
    pronouns = "ich|du|er|sie|wir"
    der_words = "de[rnms]|die|das|dies\\w+|jed\\w+|ein\\w*|mein\\w*|dein\\w*|sein\\w*|ihr\\w*"
    determiner = f"(?:{der_words}|unser\\w*|zwei|drei|zehn)"
    phrase = f"(?:{determiner} )?(?:[a-zäöüß]+ )?[A-ZÄÖÜ][a-zäöüß]+"
    with_owner = f"{phrase}(?: {determiner} (?:[a-zäöüß]+ )?[A-ZÄÖÜ][a-zäöüß]+)?"
    place = f"(?:in|hinter|vor) {phrase}|im (?:[a-zäöüß]+ )?[A-ZÄÖÜ][a-zäöüß]+"
    adverbs = "|".join(re.escape(a.german_words) for a in ADVERBS.values())
    first = re.compile(f"(?:{pronouns}|{with_owner}|{place}|{adverbs})$")
    fronted = after_clause = 0
    for source, german in pairs:
        previous = None
        for head, words in clauses(german):
            if not head:
                position = finite_position(words, finite_forms)[0]
                if previous:
                    after_clause += 1
                    assert position == 0, german
                else:
                    start = " ".join(words[:position])
                    # the splitting made the first letter small; nouns need theirs back
                    candidates = (start, start[:1].upper() + start[1:])
                    assert any(first.match(text) for text in candidates), german
                    english = source.split()[0].lower()
                    fronted += english in ("in", "behind", "today", "tomorrow", "yesterday")
            previous = head
    assert fronted > 300 and after_clause > 300


def test_subject_and_verb_agree_in_drawn_sentences(pairs, finite_forms):
    """A pronoun that opens a sentence and the finite verb behind it have the same person."""
    auxiliary_persons = {
        "ich": set("bin war habe kann soll werde darf will muss weiß".split()),
        "du": set("bist warst hast kannst sollst wirst darfst willst musst weißt".split()),
        "er": set("ist war hat kann soll wird darf will muss weiß".split()),
        "wir": set("sind waren haben können sollen werden dürfen wollen müssen wissen".split()),
    }
    endings = {"ich": ("e",), "du": ("st", "t"), "er": ("t",), "wir": ("en",)}
    checked = dict.fromkeys(endings, 0)
    for _, german in pairs:
        words = german.rstrip(".").split()
        subject, verb = words[0].lower(), words[1].rstrip(",")
        if subject in endings:
            checked[subject] += 1
            full_verb = verb not in AUXILIARIES | {"weiß", "weißt"} and verb in finite_forms
            assert verb in auxiliary_persons[subject] or (
                full_verb and verb.endswith(endings[subject])
            ), german
    assert min(checked.values()) > 50
