#!/usr/bin/env python3
"""Write a small English-German corpus of documents in which earlier sentences decide later ones.

    paragraphs.py OUT [--train N] [--valid N] [--test N] [--choices N] [--seed N]

OUT/{train,valid,test}.{en,de} have one sentence per line and a blank line after each document. In
three kinds of sentence, an earlier sentence decides the German, and nothing else does:

    it    "It is old." - "Er/Sie/Es ist alt.", by the gender of the last thing named
    one   "My sister buys a new one." - "... einen neuen/eine neue/ein neues", by the same gender
    did   "The doctor did, too." - "Auch der Arzt hat geschlafen.", by the last action

OUT/choices.json and OUT/documents/choices.{en,de} test each kind at each distance, in the format of
ContraPro. The decision is drawn independently of the sentence, so a model that sees the sentence
alone is right no more often than OUT/bounds.json says, except by chance.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from corpus import PLAIN_VERBS, Sampler, is_natural, write_lines
from grammar import Clause, NounPhrase, Pronoun, finish
from inflection import NOM, conjugate_german
from lexicon import ADJECTIVES, NOUNS, VERBS, Noun

GENDERS = "mfn"
THING = frozenset(["thing"])
THINGS = {g: [n for n in NOUNS.values() if "thing" in n.kinds and n.gender == g] for g in GENDERS}
IT = {"m": "er ihn ihm", "f": "sie sie ihr", "n": "es es ihm"}
ONE = {gender: Noun("one", "ones", gender, "", "", "", THING) for gender in GENDERS}
INTRANSITIVE = [
    verb for verb in PLAIN_VERBS if not (verb.dative or verb.accusative or verb.english == "be")
]
#: Verbs of sentences that decide nothing: their objects are persons, and their tense is not past.
ABOUT_PERSONS = [
    verb
    for verb in PLAIN_VERBS
    if "person" in verb.accusative or verb.dative and not verb.accusative
]
TRANSITIVE = [verb for verb in PLAIN_VERBS if "thing" in verb.accusative and not verb.dative]
NOT_PAST = ("present", "present", "present", "can", "should", "will", "may", "want to", "have to")
DETERMINERS = ("the", "a", "this", "my", "your", "his", "her", "our")
KINDS = ("it", "one", "did")
NEAR, FAR = 3, 6  # the largest distances in the corpus and in the choices
SENTENCES = (4, 8)  # at least and at most in a document


class Line(NamedTuple):
    """A sentence of a document."""

    pair: Tuple[str, str]  # English and German
    wrong: Sequence[str] = ()  # German sentences, correct after other sentences
    words: Tuple[str, str] = ("", "")  # the English word that is decided, and its translation


class Episode(NamedTuple):
    """Sentences, the first of which decides the last."""

    lines: List[Line]
    kind: str


class Documents(Sampler):
    """Draws documents; equal seeds give equal documents."""

    def clause_of(self, **parts: Any) -> Tuple[str, str]:
        """Draw a natural clause; *parts* are arguments of :class:`Clause`, or draw arguments."""
        while True:
            found = {name: part() if callable(part) else part for name, part in parts.items()}
            clause = Clause(**found)
            if is_natural(clause):
                return finish(clause.english()), finish(clause.german())

    def person(self) -> NounPhrase:
        """A person in the singular, without an owner."""
        noun = self.random.choice([n for n in NOUNS.values() if "person" in n.kinds])
        return NounPhrase(noun, determiner=self.random.choice(("the", "my", "your", "our")))

    def thing(self, noun: Noun) -> NounPhrase:
        """A noun phrase of a thing in the singular; *noun* may be one of :data:`ONE`."""
        fitting = [a for a in ADJECTIVES.values() if "thing" in a.kinds]
        return NounPhrase(
            noun,
            determiner=self.random.choice(DETERMINERS),
            adjective=self.random.choice(fitting),
        )

    def between(self) -> Line:
        """A sentence that decides nothing, and that no other sentence decides."""
        verb = self.random.choice([*INTRANSITIVE, *ABOUT_PERSONS])
        return Line(
            self.clause_of(
                subject=self.person,
                verb=verb,
                tense=self.random.choice(NOT_PAST),
                negated=self.maybe(0.2),
                dative=self.person if verb.dative else None,
                accusative=self.person if "person" in verb.accusative else None,
            )
        )

    def decided(self, kind: str, choice: int) -> Tuple[Line, Line]:
        """A sentence that decides, and the sentence that it decides.

        Args:
            kind: one of :data:`KINDS`.
            choice: the decision's index in :data:`GENDERS` or, for "did", :data:`INTRANSITIVE`.
        """
        if kind == "did":
            return self._did(choice)
        gender = GENDERS[choice]
        noun = self.random.choice(THINGS[gender])
        named = Line(
            self.clause_of(
                subject=self.person,
                verb=self.random.choice(TRANSITIVE),
                tense=self.random.choice(NOT_PAST),
                accusative=self.thing(noun),
            )
        )
        subject, phrase = self.person(), self.thing(ONE[gender])
        verb, tense = self.random.choice(TRANSITIVE), self.random.choice(NOT_PAST)
        adjective = self.random.choice([a for a in ADJECTIVES.values() if "thing" in a.kinds])
        is_subject, past = self.maybe(0.5), self.maybe(0.5)
        variants = {}
        for each in GENDERS:
            it = Pronoun(2, "it it", IT[each])
            if kind == "it" and is_subject:
                be = VERBS["be"]
                clause = Clause(it, be, "past" if past else "present", predicate=adjective)
            elif kind == "it":
                clause = Clause(subject, verb, tense, accusative=it)  # type: ignore[arg-type]
            else:
                other = NounPhrase(ONE[each], False, phrase.determiner, phrase.adjective)
                clause = Clause(subject, verb, tense, accusative=other)
            variants[each] = (finish(clause.english()), finish(clause.german()))
        word = IT[gender].split()[not is_subject] if kind == "it" else gender
        wrong = [variants[each][1] for each in GENDERS if each != gender]
        return named, Line(variants[gender], wrong, (kind, word))

    def _did(self, choice: int) -> Tuple[Line, Line]:
        verb, subject = INTRANSITIVE[choice], self.person()
        done = Line(self.clause_of(subject=subject, verb=verb, tense="past"))
        other = subject
        while other.noun == subject.noun:
            other = self.person()
        variants = [
            finish(
                ["auch", *other.german(NOM)]
                + [conjugate_german(each.auxiliary, other.person), each.participle]
            )
            for each in INTRANSITIVE
        ]
        # "Auch der Arzt hat geschlafen": the finite verb is second, as in a main clause
        english = finish([*other.english(NOM), "did", ",", "too"])
        wrong = [text for number, text in enumerate(variants) if number != choice]
        return done, Line((english, variants[choice]), wrong, ("did", verb.participle))

    def episode(self, kind: str, choice: int, distance: int) -> Episode:
        """A sentence that decides, *distance* - 1 others, and the sentence that it decides."""
        first, last = self.decided(kind, choice)
        return Episode([first, *(self.between() for _ in range(distance - 1)), last], kind)

    def document(self) -> List[Line]:
        """A document of the corpus."""
        wanted, found = self.random.randint(*SENTENCES), []  # type: int, List[Line]
        while len(found) < wanted:
            kind, distance = self.random.choice(KINDS), self.random.randint(1, NEAR)
            count = len(INTRANSITIVE) if kind == "did" else len(GENDERS)
            found += self.episode(kind, self.random.randrange(count), distance).lines
            found += [self.between()] * self.maybe(0.3)
        return found

    def choices(self, each: int) -> Iterator[Tuple[int, Episode]]:
        """Yield *each* episodes per kind and distance, with equally frequent decisions."""
        for kind in KINDS:
            count = len(INTRANSITIVE) if kind == "did" else len(GENDERS)
            for distance in range(1, FAR + 1):
                for number in range(each):
                    yield distance, self.episode(kind, number % count, distance)


def text_of(documents: Sequence[Sequence[Line]], side: int) -> Iterator[str]:
    """The lines of documents on one side (0: English), with a blank line after each document."""
    for document in documents:
        yield from (line.pair[side] for line in document)
        yield ""


def entry_of(line: int, distance: int, episode: Episode) -> Dict[str, Any]:
    """A choice in the format of contrapro.json; *line* is the number of its sentence."""
    asked = episode.lines[-1]
    return {
        "document id": "choices.de",
        "segment id": line,
        "src segment": asked.pair[0],
        "ref segment": asked.pair[1],
        "src pronoun": asked.words[0],
        "ref pronoun": asked.words[1],
        "ante distance": distance,
        "intrasegmental": False,
        "errors": [{"contrastive": text, "type": episode.kind} for text in asked.wrong],
    }


def write_documents(folder: Path, sizes: Dict[str, int], choices: int, seed: int) -> None:
    """Draw all splits without repeated documents, and write them and the choices."""
    sampler, seen = Documents(seed), set()
    (folder / "documents").mkdir(parents=True, exist_ok=True)
    for split, size in sizes.items():
        documents: List[List[Line]] = []
        while len(documents) < size:
            document = sampler.document()
            text = tuple(line.pair for line in document)
            if text not in seen:
                seen.add(text)
                documents.append(document)
        for side, lang in enumerate(("en", "de")):
            write_lines(folder / f"{split}.{lang}", text_of(documents, side))
    entries, episodes, line = [], [], 0
    for distance, episode in sampler.choices(choices):
        episodes.append(episode.lines)
        entries.append(entry_of(line + len(episode.lines), distance, episode))
        line += len(episode.lines) + 1
    for side, lang in enumerate(("en", "de")):
        write_lines(folder / "documents" / f"choices.{lang}", text_of(episodes, side))
    write_lines(folder / "choices.json", [json.dumps(entries, indent=1, ensure_ascii=False)])
    bounds = {kind: 100 / len(GENDERS) for kind in KINDS}
    bounds["did"] = 100 / len(INTRANSITIVE)
    bounds["all"] = sum(bounds.values()) / len(KINDS)
    write_lines(folder / "bounds.json", [json.dumps(bounds)])


def main(arguments: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, metavar="OUT", help="folder for the files")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    for name, size in (("train", 5000), ("valid", 100), ("test", 100)):
        shown = f"documents in {name} (default {size})"
        parser.add_argument("--" + name, type=int, default=size, metavar="N", help=shown)
    shown = "choices of each kind at each distance (default 36)"
    parser.add_argument("--choices", type=int, default=36, metavar="N", help=shown)
    args = parser.parse_args(arguments)
    sizes = {split: getattr(args, split) for split in ("train", "valid", "test")}
    for name, size in {**sizes, "choices": args.choices}.items():
        if size < 1:
            sys.exit(f"--{name} {size}: must be 1 or more")
    try:
        write_documents(args.output, sizes, args.choices, args.seed)
    except OSError as error:
        sys.exit(f"{args.output}: {error}")


if __name__ == "__main__":
    main()
