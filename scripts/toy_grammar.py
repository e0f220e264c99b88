"""A small English-German grammar: one structure, realised in both languages.

Nouns carry gender, plural and genitive; articles and adjectives agree with them in gender, number
and case. Clauses know three German word orders: verb second, verb first after a fronted clause,
and verb final. The German of a sentence is a function of its English.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from toy_lexicon import IRREGULAR, Adjective, Adverb, Noun, Verb

NOM, ACC, DAT, GEN = range(4)
THIRD_SINGULAR, THIRD_PLURAL = 2, 4  # among ich, du, er, wir, sie

# Endings by gender (m, f, n) or plural (p), in the order nominative, accusative, dative, genitive.
DEFINITE = {"m": "der den dem des", "f": "die die der der", "n": "das das dem des",
            "p": "die die den der"}
DER_WORD = {"m": "er en em es", "f": "e e er er", "n": "es es em es", "p": "e e en er"}
EIN_WORD = {"m": "- en em es", "f": "e e er er", "n": "- - em es", "p": "e e en er"}
WEAK = {"m": "e en en en", "f": "e e en en", "n": "e e en en", "p": "en en en en"}
MIXED = {"m": "er en en en", "f": "e e en en", "n": "es es en en", "p": "en en en en"}
STRONG = {"p": "e e en er"}


def ending(table: dict, gender: str, case: int) -> str:
    return table[gender].split()[case].replace("-", "")


class Determiner(NamedTuple):
    """English singular and plural ("" where there is none), German stem, the two ending tables."""

    english: Tuple[str, str]
    german: str
    endings: Optional[dict]  # None: the stem does not inflect
    adjective: dict

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
INDEFINITE = ("a", "bare")  # negated by kein, not by nicht


def noun_form(noun: Noun, plural: bool, case: int) -> str:
    """German noun in number and case: dative plural -n, genitive, weak masculines (den Jungen)."""
    if plural:
        takes_n = case == DAT and noun.german_plural[-1] not in "ns"
        return noun.german_plural + ("n" if takes_n else "")
    weak = noun.gender == "m" and not noun.german_genitive.endswith("s")
    return noun.german_genitive if case == GEN or (weak and case != NOM) else noun.german


class NounPhrase(NamedTuple):
    noun: Noun
    plural: bool = False
    determiner: str = "the"
    adjective: Optional[Adjective] = None
    owner: Optional["NounPhrase"] = None
    pronoun = False

    @property
    def person(self) -> int:
        return THIRD_PLURAL if self.plural else THIRD_SINGULAR

    def english(self, case: int) -> List[str]:
        words = [self.adjective.english] if self.adjective else []
        words.append(self.noun.english_plural if self.plural else self.noun.english)
        determiner = DETERMINERS[self.determiner].english[self.plural]
        if determiner == "a" and words[0][0] in "aeiou":
            determiner = "an"
        words = ([determiner] if determiner else []) + words
        return words + (["of"] + self.owner.english(GEN) if self.owner else [])

    def german(self, case: int) -> List[str]:
        gender = "p" if self.plural else self.noun.gender
        determiner = DETERMINERS[self.determiner]
        words = [determiner.inflect(gender, case)]
        if self.adjective:
            words.append(self.adjective.german + ending(determiner.adjective, gender, case))
        words.append(noun_form(self.noun, self.plural, case))
        return [w for w in words if w] + (self.owner.german(GEN) if self.owner else [])


class Pronoun(NamedTuple):
    person: int
    english_forms: str  # subject, object
    german_forms: str  # nominative, accusative, dative
    pronoun = True

    def english(self, case: int) -> List[str]:
        return [self.english_forms.split()[0 if case == NOM else 1]]

    def german(self, case: int) -> List[str]:
        return [self.german_forms.split()[case]]


PRONOUNS = (
    Pronoun(0, "I me", "ich mich mir"),
    Pronoun(1, "you you", "du dich dir"),
    Pronoun(2, "he him", "er ihn ihm"),
    Pronoun(2, "she her", "sie sie ihr"),
    Pronoun(3, "we us", "wir uns uns"),
    Pronoun(4, "they them", "sie sie ihnen"),
)


class Prepositional(NamedTuple):
    """A preposition with its noun phrase and the case that it governs in German."""

    english_word: str
    german_word: str
    case: int
    phrase: NounPhrase

    def english(self) -> List[str]:
        return self.english_word.split() + self.phrase.english(self.case)

    def german(self) -> List[str]:
        words = [self.german_word] + self.phrase.german(self.case)
        return ["im"] + words[2:] if words[:2] == ["in", "dem"] else words


def conjugate_english(verb: str, person: int) -> str:
    """Present tense of an English verb, of its first word where it has a particle."""
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


class Clause(NamedTuple):
    """One clause; `tense` is "present", "past" or a modal's English (a key of MODALS)."""

    subject: object  # NounPhrase or Pronoun
    verb: Verb
    tense: str = "present"
    negated: bool = False
    dative: Optional[object] = None
    accusative: Optional[object] = None
    predicate: Optional[Adjective] = None
    companion: Optional[Prepositional] = None
    place: Optional[Prepositional] = None
    time: Optional[Adverb] = None
    front: str = ""  # "", "time" or "place"

    def english(self) -> List[str]:
        person, verb = self.subject.person, self.verb
        negation = ["not"] if self.negated else []
        if self.tense in MODALS:
            predicate = MODALS[self.tense].english(person, self.negated) + [verb.english]
        elif verb.english == "be":
            past = "was" if person in (0, THIRD_SINGULAR) else "were"
            predicate = [past if self.tense == "past" else conjugate_english("be", person)]
            predicate += negation
        elif self.negated:
            do = "did" if self.tense == "past" else conjugate_english("do", person)
            predicate = [do, "not", verb.english]
        else:
            past = self.tense == "past"
            predicate = [verb.english_past if past else conjugate_english(verb.english, person)]
        first = getattr(self, self.front).english() if self.front else []
        words = first + self.subject.english(NOM) + predicate
        words += [self.predicate.english] if self.predicate else []
        for phrase, case in ((self.dative, DAT), (self.accusative, ACC)):
            words += phrase.english(case) if phrase else []
        for name in ("companion", "place", "time"):
            adverbial = getattr(self, name)
            words += adverbial.english() if adverbial and name != self.front else []
        return words

    def german_verbs(self) -> Tuple[str, List[str]]:
        """The finite verb, and what closes the clause: prefix, participle or infinitive."""
        person, verb = self.subject.person, self.verb
        if self.tense in MODALS:
            return conjugate_german(MODALS[self.tense].german, person), [verb.infinitive]
        if verb.english == "be":
            return conjugate_german("waren" if self.tense == "past" else "sein", person), []
        if self.tense == "past":
            return conjugate_german(verb.auxiliary, person), [verb.participle]
        finite = conjugate_german(verb.german, person, verb.changed_stem)
        return finite, [verb.prefix] if verb.prefix else []

    def german_middle(self) -> List[str]:
        """Everything between the verbs but the subject."""
        accusative, nicht = self.accusative, ["nicht"] if self.negated else []
        if self.negated and accusative and not accusative.pronoun:
            if accusative.determiner in INDEFINITE:
                accusative, nicht = accusative._replace(determiner="no"), []
        objects = [(p, c) for p, c in ((self.dative, DAT), (accusative, ACC)) if p]
        words = [w for p, c in objects if p.pronoun for w in p.german(c)]
        words += self.time.german() if self.time and self.front != "time" else []
        words += [w for p, c in objects if not p.pronoun for w in p.german(c)] + nicht
        words += self.companion.german() if self.companion else []
        words += self.place.german() if self.place and self.front != "place" else []
        return words + ([self.predicate.german] if self.predicate else [])

    def german(self, order: str = "second") -> List[str]:
        """Args: order: "second", "first" (a clause stands before it) or "final"."""
        finite, closing = self.german_verbs()
        subject, middle = self.subject.german(NOM), self.german_middle()
        if order == "final":
            joined = closing == [self.verb.prefix]  # ruft ... an -> anruft
            verbs = [closing[0] + finite] if joined else closing + [finite]
            return subject + middle + verbs
        if order == "first":
            return [finite] + subject + middle + closing
        if self.front:
            return getattr(self, self.front).german() + [finite] + subject + middle + closing
        return subject + [finite] + middle + closing


class Modal(NamedTuple):
    base: str
    german: str
    negative: str  # of an auxiliary; "" for a full verb, negated with do

    def english(self, person: int, negated: bool) -> List[str]:
        if self.negative:
            return self.negative.split() if negated else [self.base]
        if negated:
            return [conjugate_english("do", person), "not", self.base]
        return [conjugate_english(self.base, person)]


MODALS = {
    "can": Modal("can", "können", "cannot"),
    "should": Modal("should", "sollen", "should not"),
    "will": Modal("will", "werden", "will not"),
    "may": Modal("may", "dürfen", "may not"),
    "want to": Modal("want to", "wollen", ""),
    "have to": Modal("have to", "müssen", ""),
}


class Sentence(NamedTuple):
    """A main clause, alone or with a clause joined by that, because or if (before it or after)."""

    main: Clause
    conjunction: str = ""
    subordinate: Optional[Clause] = None
    subordinate_first: bool = False

    def pair(self) -> Tuple[str, str]:
        """Returns: the English and the German sentence, capitalised, with their punctuation."""
        if not self.subordinate:
            return finish(self.main.english()), finish(self.main.german())
        joined = [self.conjunction] + self.subordinate.english()
        final = [CONJUNCTIONS[self.conjunction]] + self.subordinate.german("final")
        if self.subordinate_first:
            return (finish(joined + [","] + self.main.english()),
                    finish(final + [","] + self.main.german("first")))
        return finish(self.main.english() + joined), finish(self.main.german() + [","] + final)


CONJUNCTIONS = {"that": "dass", "because": "weil", "if": "wenn"}


def finish(words: Sequence[str]) -> str:
    text = " ".join(words).replace(" ,", ",") + "."
    return text[0].upper() + text[1:]
