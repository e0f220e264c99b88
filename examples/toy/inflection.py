"""Inflection in the toy grammar: German cases and endings, and the verbs of both languages."""

from typing import Dict, NamedTuple, Optional, Tuple

from lexicon import IRREGULAR, Noun

NOM, ACC, DAT, GEN = range(4)
THIRD_SINGULAR, THIRD_PLURAL = 2, 4  # among ich, du, er, wir, sie

# Endings by gender (m, f, n) or plural (p), in the order nominative, accusative, dative, genitive.
DEFINITE = {
    "m": "der den dem des",
    "f": "die die der der",
    "n": "das das dem des",
    "p": "die die den der",
}
DER_WORD = {"m": "er en em es", "f": "e e er er", "n": "es es em es", "p": "e e en er"}
EIN_WORD = {"m": "- en em es", "f": "e e er er", "n": "- - em es", "p": "e e en er"}
WEAK = {"m": "e en en en", "f": "e e en en", "n": "e e en en", "p": "en en en en"}
MIXED = {"m": "er en en en", "f": "e e en en", "n": "es es en en", "p": "en en en en"}
STRONG = {"p": "e e en er"}


Endings = Dict[str, str]


def ending(table: Endings, gender: str, case: int) -> str:
    return table[gender].split()[case].replace("-", "")


class Determiner(NamedTuple):
    """English singular and plural ("" for none), German stem, its endings, adjectives' endings."""

    english: Tuple[str, str]
    german: str
    endings: Optional[Endings]  # None: the stem does not inflect
    adjective: Endings

    def inflect(self, gender: str, case: int) -> str:
        return self.german + (ending(self.endings, gender, case) if self.endings else "")


DETERMINERS = {
    "the": Determiner(("the", "the"), "", DEFINITE, WEAK),
    "this": Determiner(("this", "these"), "dies", DER_WORD, WEAK),
    "every": Determiner(("every", ""), "jed", DER_WORD, WEAK),
    "a": Determiner(("a", ""), "ein", EIN_WORD, MIXED),
    "no": Determiner(("", ""), "kein", EIN_WORD, MIXED),  # German only: not + a
    "my": Determiner(("my", "my"), "mein", EIN_WORD, MIXED),
    "your": Determiner(("your", "your"), "dein", EIN_WORD, MIXED),
    "his": Determiner(("his", "his"), "sein", EIN_WORD, MIXED),
    "her": Determiner(("her", "her"), "ihr", EIN_WORD, MIXED),
    "our": Determiner(("our", "our"), "unser", EIN_WORD, MIXED),
    "bare": Determiner(("", ""), "", None, STRONG),
    "two": Determiner(("", "two"), "zwei", None, STRONG),
    "three": Determiner(("", "three"), "drei", None, STRONG),
    "ten": Determiner(("", "ten"), "zehn", None, STRONG),
}
INDEFINITE = ("a", "bare")  # these phrases are negated by "kein"


def noun_form(noun: Noun, plural: bool, case: int) -> str:
    """The German noun in a number and case, with dative plural -n and weak forms (den Jungen)."""
    if plural:
        takes_n = case == DAT and noun.german_plural[-1] not in "ns"
        return noun.german_plural + ("n" if takes_n else "")
    weak = noun.gender == "m" and not noun.german_genitive.endswith("s")
    return noun.german_genitive if case == GEN or (weak and case != NOM) else noun.german


def conjugate_english(verb: str, person: int) -> str:
    """Present tense of an English verb; only its first word is inflected (looks at)."""
    if verb == "be":
        return ("am", "are", "is", "are", "are")[person]
    if person != THIRD_SINGULAR:
        return verb
    head, _, particle = verb.partition(" ")
    if head == "have":
        head = "has"
    elif head.endswith(("s", "sh", "ch", "x", "o")):
        head += "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ies"
    else:
        head += "s"
    return (head + " " + particle).strip()


def conjugate_german(infinitive: str, person: int, changed_stem: str = "") -> str:
    """Present tense of a German verb without its separable prefix."""
    if infinitive in IRREGULAR:
        return IRREGULAR[infinitive].split()[person]
    stem = infinitive[:-2]
    if person not in (1, THIRD_SINGULAR):
        return stem + "e" if person == 0 else infinitive
    linking = "e" if stem[-1] in "td" and not changed_stem else ""
    stem = (changed_stem or stem) + linking
    return stem + ("st" if person == 1 and stem[-1] not in "sßz" else "t")
