"""The toy corpus: German word order and agreement, checked against tables written by hand here."""

import importlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

TOY = Path(__file__).resolve().parents[1] / "examples" / "toy"


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

# ---- German as a grammar book has it, independent of the generator

# article + ending of the adjective, by gender or plural: nominative, accusative, dative, genitive
AFTER_DER = {
    "m": ["der e", "den en", "dem en", "des en"],
    "f": ["die e", "die e", "der en", "der en"],
    "n": ["das e", "das e", "dem en", "des en"],
    "p": ["die en", "die en", "den en", "der en"],
}
AFTER_EIN = {
    "m": ["ein er", "einen en", "einem en", "eines en"],
    "f": ["eine e", "eine e", "einer en", "einer en"],
    "n": ["ein es", "ein es", "einem en", "eines en"],
}
# nominative singular, accusative, dative, genitive, nominative plural, dative plural
PARADIGMS = {
    "man": ("m", "Mann Mann Mann Mannes Männer Männern"),
    "boy": ("m", "Junge Jungen Jungen Jungen Jungen Jungen"),
    "student": ("m", "Student Studenten Studenten Studenten Studenten Studenten"),
    "bear": ("m", "Bär Bären Bären Bären Bären Bären"),
    "teacher": ("m", "Lehrer Lehrer Lehrer Lehrers Lehrer Lehrern"),
    "woman": ("f", "Frau Frau Frau Frau Frauen Frauen"),
    "mother": ("f", "Mutter Mutter Mutter Mutter Mütter Müttern"),
    "actress": (
        "f",
        "Schauspielerin Schauspielerin Schauspielerin Schauspielerin "
        "Schauspielerinnen Schauspielerinnen",
    ),
    "child": ("n", "Kind Kind Kind Kindes Kinder Kindern"),
    "girl": ("n", "Mädchen Mädchen Mädchen Mädchens Mädchen Mädchen"),
    "hotel": ("n", "Hotel Hotel Hotel Hotels Hotels Hotels"),
}
PRESENT = {  # ich, du, er, wir, sie
    "sleep": "schlafe schläfst schläft schlafen schlafen",
    "work": "arbeite arbeitest arbeitet arbeiten arbeiten",
    "dance": "tanze tanzt tanzt tanzen tanzen",
    "see": "sehe siehst sieht sehen sehen",
    "forget": "vergesse vergisst vergisst vergessen vergessen",
    "carry": "trage trägst trägt tragen tragen",
    "help": "helfe hilfst hilft helfen helfen",
    "give": "gebe gibst gibt geben geben",
    "invite": "lade lädst lädt laden laden",
    "find": "finde findest findet finden finden",
    "be": "bin bist ist sind sind",
    "know": "weiß weißt weiß wissen wissen",
}
AUXILIARIES = set(
    "bin bist ist sind war warst waren habe hast hat haben kann kannst können soll sollst sollen "
    "werde wirst wird werden darf darfst dürfen will willst wollen muss musst müssen".split()
)
PREFIXES = set("an auf zu ab ein mit zurück".split())
SUBORDINATING = ("dass", "weil", "wenn")
SINGULAR_SUBJECTS = {"ich": 0, "du": 1, "er": 2}


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


# ---- the tables of the generator against the grammar book


@pytest.mark.parametrize("english", PARADIGMS)
def test_nouns_and_articles_agree_in_gender_number_and_case(english):
    gender, forms = PARADIGMS[english]
    *singular, plural, dative_plural = forms.split()
    noun, old = NOUNS[english], ADJECTIVES["old"]
    for case in range(4):
        for determiner, table in (("the", AFTER_DER), ("a", AFTER_EIN)):
            article, ending = table[gender][case].split()
            phrase = NounPhrase(noun, False, determiner, old)
            assert phrase.german(case) == [article, "alt" + ending, singular[case]]
        article, ending = AFTER_DER["p"][case].split()
        expected = [article, "alt" + ending, dative_plural if case == 2 else plural]
        assert NounPhrase(noun, True, "the", old).german(case) == expected
    assert NounPhrase(noun, True, "bare", old).german(2) == ["alten", dative_plural]
    assert NounPhrase(noun, True, "two", old).german(0) == ["zwei", "alte", plural]


@pytest.mark.parametrize("english", PRESENT)
def test_verbs_agree_with_their_subject(english):
    verb = VERBS[english]
    forms = [conjugate_german(verb.german, person, verb.changed_stem) for person in range(5)]
    assert forms == PRESENT[english].split()


# ---- whole sentences

HE, THEY, I = (  # noqa: E741
    Pronoun(2, "he him", "er ihn ihm"),
    Pronoun(4, "they them", "sie sie ihnen"),
    Pronoun(0, "I me", "ich mich mir"),
)
WOMAN, DOCTOR, BOOK = (NounPhrase(NOUNS[n]) for n in ("woman", "doctor", "book"))
CALL = Clause(WOMAN, VERBS["call"], accusative=DOCTOR)
BUY = Clause(HE, VERBS["buy"], accusative=BOOK)
BY_HAND = [
    (Sentence(CALL), "The woman calls the doctor.", "Die Frau ruft den Arzt an."),
    (
        Sentence(CALL._replace(tense="past")),
        "The woman called the doctor.",
        "Die Frau hat den Arzt angerufen.",
    ),
    (
        Sentence(CALL._replace(tense="can", negated=True)),
        "The woman cannot call the doctor.",
        "Die Frau kann den Arzt nicht anrufen.",
    ),
    (
        Sentence(CALL._replace(tense="want to", negated=True)),
        "The woman does not want to call the doctor.",
        "Die Frau will den Arzt nicht anrufen.",
    ),
    (
        Sentence(CALL._replace(time=ADVERBS["today"], front="time")),
        "Today the woman calls the doctor.",
        "Heute ruft die Frau den Arzt an.",
    ),
    (
        Sentence(Clause(HE, VERBS["say"]), "that", CALL),
        "He says that the woman calls the doctor.",
        "Er sagt, dass die Frau den Arzt anruft.",
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
    (
        Sentence(
            Clause(
                NounPhrase(NOUNS["dog"], owner=NounPhrase(NOUNS["boy"], False, "this")),
                VERBS["be"],
                "past",
                negated=True,
                predicate=ADJECTIVES["small"],
            )
        ),
        "The dog of this boy was not small.",
        "Der Hund dieses Jungen war nicht klein.",
    ),
]


@pytest.mark.parametrize(("sentence", "english", "german"), BY_HAND, ids=[b[1] for b in BY_HAND])
def test_translations_by_hand(sentence, english, german):
    assert sentence.pair() == (english, german)


# ---- properties of what the generator draws


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


def test_separable_verbs_part_in_main_clauses_only(pairs):
    parted = whole = 0
    for source, german in pairs:
        if source.startswith(("If", "Today")) or " because " in source or " if " in source:
            continue
        if re.search(r" that .* calls ", source):
            whole += 1
            assert german.endswith(" anruft."), german
        elif re.search(r" calls ", source):
            parted += 1
            assert " ruft " in german and german.endswith(" an."), german
    assert parted > 3 and whole > 3


def test_perfect_ends_with_the_participle(pairs):
    participles = {
        "bought": "gekauft",
        "visited": "besucht",
        "slept": "geschlafen",
        "opened": "aufgemacht",
        "followed": "gefolgt",
        "arrived": "angekommen",
    }
    auxiliaries = set("habe hast hat haben bin bist ist sind".split())
    seen = set()
    for source, german in pairs:
        verbs = [word for word in source.rstrip(".").split() if word in participles]
        if len(verbs) == 1 and not re.search("that | because | if |If ", source):
            words = german.rstrip(".").split()
            seen.add(verbs[0])
            assert words[-1] == participles[verbs[0]], german
            assert len(auxiliaries & set(words)) == 1, german
    assert seen == set(participles)


# ---- files


def run_script(*arguments):
    command = [sys.executable, str(TOY / "corpus.py"), *map(str, arguments)]
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train", "0"], "--train 0: must be 1 or more"),
        (["--valid", "-3"], "--valid -3: must be 1 or more"),
    ],
)
def test_wrong_sizes_are_one_line(tmp_path, arguments, message):
    result = run_script(tmp_path / "out", *arguments)
    assert result.returncode == 1 and result.stderr == message + "\n"
    assert not (tmp_path / "out").exists()


def test_a_file_in_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "out").write_text("mine")
    result = run_script(tmp_path / "out", "--train", "5", "--valid", "5", "--test", "5")
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert (tmp_path / "out").read_text() == "mine"


def test_a_used_up_grammar_is_an_error(monkeypatch):
    sentence = BY_HAND[0][0]
    monkeypatch.setattr(toy.Sampler, "sentence", lambda self: sentence)
    with pytest.raises(ValueError, match="only 1 sentences"):
        toy.draw_pairs(2, seed=1)
