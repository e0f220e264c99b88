"""A small English-German grammar: each structure is realised in both languages.

Articles and adjectives agree with their noun in gender, number and case, verbs with their subject.
German clauses have three word orders: verb second, verb first after a fronted clause, and verb
final. Each English sentence determines its German translation.
"""

from dataclasses import dataclass, replace
from typing import List, NamedTuple, Optional, Sequence, Tuple, Union

from inflection import (
    ACC,
    DAT,
    DETERMINERS,
    GEN,
    INDEFINITE,
    NOM,
    THIRD_PLURAL,
    THIRD_SINGULAR,
    conjugate_english,
    conjugate_german,
    ending,
    noun_form,
)
from lexicon import Adjective, Adverb, Noun, Verb


@dataclass(frozen=True)
class NounPhrase:
    noun: Noun
    plural: bool = False
    determiner: str = "the"
    adjective: Optional[Adjective] = None
    owner: Optional["NounPhrase"] = None

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

    def with_kein(self) -> Optional["NounPhrase"]:
        """The phrase negated by "kein", or None if "nicht" has to negate it."""
        return replace(self, determiner="no") if self.determiner in INDEFINITE else None


@dataclass(frozen=True)
class Pronoun:
    person: int
    english_forms: str  # subject, object
    german_forms: str  # nominative, accusative, dative
    noun = None
    determiner = ""

    def english(self, case: int) -> List[str]:
        return [self.english_forms.split()[0 if case == NOM else 1]]

    def german(self, case: int) -> List[str]:
        return [self.german_forms.split()[case]]

    def with_kein(self) -> None:
        return None


Phrase = Union[NounPhrase, Pronoun]
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


class Clause(NamedTuple):
    """One clause; `tense` is "present", "past" or an English modal (a key of MODALS)."""

    subject: Phrase
    verb: Verb
    tense: str = "present"
    negated: bool = False
    dative: Optional[Phrase] = None
    accusative: Optional[Phrase] = None
    predicate: Optional[Adjective] = None
    companion: Optional[Prepositional] = None
    place: Optional[Prepositional] = None
    time: Optional[Adverb] = None
    front: str = ""  # "", "time" or "place"

    def english(self) -> List[str]:
        person, verb = self.subject.person, self.verb
        if self.tense in MODALS:
            predicate = MODALS[self.tense].english(person, self.negated) + [verb.english]
        elif verb.english == "be":
            was = "was" if person in (0, THIRD_SINGULAR) else "were"
            predicate = [was if self.tense == "past" else conjugate_english("be", person)]
            predicate += ["not"] if self.negated else []
        elif self.negated:
            do = "did" if self.tense == "past" else conjugate_english("do", person)
            predicate = [do, "not", verb.english]
        else:
            present = conjugate_english(verb.english, person)
            predicate = [verb.english_past if self.tense == "past" else present]
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
        """The finite verb, and the words that end the clause: prefix, participle or infinitive."""
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
        """Everything between the verbs except the subject."""
        accusative = self.accusative
        kein = accusative.with_kein() if self.negated and accusative else None
        objects = [(p, c) for p, c in ((self.dative, DAT), (kein or accusative, ACC)) if p]
        words = [w for p, c in objects if not p.noun for w in p.german(c)]
        words += self.time.german() if self.time and self.front != "time" else []
        words += [w for p, c in objects if p.noun for w in p.german(c)]
        words += ["nicht"] if self.negated and not kein else []
        words += self.companion.german() if self.companion else []
        words += self.place.german() if self.place and self.front != "place" else []
        return words + ([self.predicate.german] if self.predicate else [])

    def german(self, order: str = "second") -> List[str]:
        """The German clause with its verb "second", "first" (after a fronted clause) or "final"."""
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
    negative: str  # negated form of an auxiliary; "" if "do" forms the negation

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
    """A main clause, perhaps with a subordinate clause before or after it."""

    main: Clause
    conjunction: str = ""
    subordinate: Optional[Clause] = None
    subordinate_first: bool = False

    def pair(self) -> Tuple[str, str]:
        """The English and the German sentence, capitalised and punctuated."""
        if not self.subordinate:
            return finish(self.main.english()), finish(self.main.german())
        joined = [self.conjunction] + self.subordinate.english()
        final = [CONJUNCTIONS[self.conjunction]] + self.subordinate.german("final")
        if self.subordinate_first:
            return (
                finish(joined + [","] + self.main.english()),
                finish(final + [","] + self.main.german("first")),
            )
        return finish(self.main.english() + joined), finish(self.main.german() + [","] + final)


CONJUNCTIONS = {"that": "dass", "because": "weil", "if": "wenn"}


def finish(words: Sequence[str]) -> str:
    text = " ".join(words).replace(" ,", ",") + "."
    return text[0].upper() + text[1:]
