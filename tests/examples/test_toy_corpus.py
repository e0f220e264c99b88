"""The toy corpus: its German against tables and translations by hand, and the files it writes."""

import subprocess
import sys
from dataclasses import replace

import pytest
from support.toy_grammar import (
    ADJECTIVES,
    ADVERBS,
    NOUNS,
    TOY,
    VERBS,
    Clause,
    NounPhrase,
    Pronoun,
    Sentence,
    conjugate_german,
    toy,
)

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


# ---- what is left to draw


def test_a_used_up_grammar_is_an_error(monkeypatch):
    sentence = BY_HAND[0][0]
    monkeypatch.setattr(toy.Sampler, "sentence", lambda self: sentence)
    with pytest.raises(ValueError, match="only 1 sentences"):
        toy.draw_pairs(2, seed=1)


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
