#!/usr/bin/env python3
"""Write a small English-German corpus: train, valid and test as OUT/{train,valid,test}.{en,de}.

The sentences are sampled from a small grammar (grammar.py) with a seed; nothing is downloaded.
No source or target sentence occurs twice, so the splits do not overlap.
"""

import argparse
import os
import random
import sys
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from grammar import PRONOUNS, Clause, NounPhrase, Phrase, Prepositional, Sentence
from inflection import ACC, DAT, INDEFINITE
from lexicon import ADJECTIVES, ADVERBS, BELIEF_VERBS, NOUNS, VERBS, Adjective, Adverb

Pair = Tuple[str, str]

SINGULAR = ("the", "the", "the", "a", "a", "this", "every", "my", "your", "his", "her", "our")
PLURAL = ("the", "the", "bare", "this", "two", "three", "ten", "my", "your", "his", "her", "our")
OWNED_BY = ("the", "this", "my", "our")  # determiners of an owner
TENSES = ("present",) * 5 + ("past",) * 5 + ("can", "should", "will", "may", "want to", "have to")
PLACE_PREPOSITIONS = (("in", "in"), ("behind", "hinter"), ("in front of", "vor"))
COMPANIONS = (("with", "mit", DAT), ("for", "für", ACC), ("without", "ohne", ACC))
PLAIN_VERBS = [verb for name, verb in VERBS.items() if name not in BELIEF_VERBS]
MAX_FRUITLESS_DRAWS = 2000  # after this many in a row, the grammar counts as exhausted


class Sampler:
    """Draws sentences from the grammar; equal seeds give equal sentences."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def maybe(self, probability: float) -> bool:
        return self.random.random() < probability

    def noun_phrase(self, kinds: Iterable[str], determiners: Sequence[str] = ()) -> NounPhrase:
        draw, plural = self.random, self.maybe(0.35)
        noun = draw.choice([n for n in NOUNS.values() if n.kinds & set(kinds)])
        determiner = draw.choice(determiners or (PLURAL if plural else SINGULAR))
        fitting = [a for a in ADJECTIVES.values() if a.kinds & noun.kinds]
        adjective = draw.choice(fitting) if self.maybe(0.35) else None
        owned = determiner == "the" and not determiners and self.maybe(0.15)
        owner = self.noun_phrase(["person"], OWNED_BY) if owned else None
        return NounPhrase(noun, plural, determiner, adjective, owner)

    def phrase(
        self, kinds: Iterable[str], chance: float, others: Sequence[Optional[Phrase]] = ()
    ) -> Phrase:
        """A noun phrase or, for persons, perhaps a pronoun that is not among *others*."""
        if "person" in kinds and self.maybe(chance):
            taken = [other.person for other in others if other and not other.noun]
            return self.random.choice([p for p in PRONOUNS if p.person not in taken])
        return self.noun_phrase(kinds)

    def place(self) -> Prepositional:
        english, german = self.random.choice(PLACE_PREPOSITIONS)
        where = self.noun_phrase(["place"], ("the", "the", "the", "our"))
        return Prepositional(english, german, DAT, where)

    def companion(self) -> Prepositional:
        english, german, case = self.random.choice(COMPANIONS)
        return Prepositional(english, german, case, self.noun_phrase(["person"]))

    def predicate(self, subject: Phrase) -> Adjective:
        kinds = subject.noun.kinds if subject.noun else {"person"}
        return self.random.choice([a for a in ADJECTIVES.values() if a.kinds & kinds])

    def clause(self, may_front: bool = False) -> Clause:
        draw = self.random
        verb, tense = draw.choice(PLAIN_VERBS), draw.choice(TENSES)
        copula = verb.english == "be"
        tense = tense if tense == "past" or not copula else "present"
        subject_kinds = ["person", "animal", "thing"] if copula else ["person"]
        subject = self.phrase(subject_kinds, 0.35)
        dative = self.phrase([verb.dative], 0.3, [subject]) if verb.dative else None
        accusative: Optional[Phrase] = None
        if verb.accusative:
            accusative = self.phrase(sorted(verb.accusative), 0.2, [subject, dative])
        time: Optional[Adverb] = None
        if self.maybe(0.35):
            kind = tense if tense in ("present", "past") else "modal"
            time = draw.choice([a for a in ADVERBS.values() if kind in a.tenses])
        place = self.place() if not copula and self.maybe(0.25) else None
        fronted = [name for name, part in (("time", time), ("place", place)) if part]
        return Clause(
            subject,
            verb,
            tense,
            self.maybe(0.2),
            dative,
            accusative,
            predicate=self.predicate(subject) if copula else None,
            companion=self.companion() if not copula and self.maybe(0.12) else None,
            place=place,
            time=time,
            front=draw.choice(fronted) if may_front and fronted and self.maybe(0.6) else "",
        )

    def sentence(self) -> Sentence:
        kinds, weights = ("", "that", "because", "if", "if first"), (50, 15, 13, 8, 14)
        kind = self.random.choices(kinds, weights)[0]
        if kind == "that":
            tense = self.random.choice(("present", "past"))
            verb = VERBS[self.random.choice(BELIEF_VERBS)]
            main = Clause(self.phrase(["person"], 0.5), verb, tense, self.maybe(0.15))
        else:
            main = self.clause(may_front=kind != "if first")
        if not kind:
            return Sentence(main)
        return Sentence(main, kind.split()[0], self.clause(), kind.endswith("first"))


def is_natural(clause: Clause) -> bool:
    """False for odd German: negation with "every" or an indefinite dative, or a noun twice."""
    phrases = [p for p in (clause.subject, clause.dative, clause.accusative) if p]
    nouns = [p.noun for p in phrases if p.noun]
    if len(set(nouns)) < len(nouns):
        return False
    quantified = any(p.determiner == "every" for p in phrases)
    indefinite = bool(clause.dative and clause.dative.determiner in INDEFINITE)
    return not (clause.negated and (quantified or indefinite))


def draw_pairs(count: int, seed: int) -> List[Pair]:
    """Draw `count` pairs without repeated source or target sentences.

    Raises:
        ValueError: the grammar has fewer sentences than requested.
    """
    sampler, fruitless = Sampler(seed), 0
    pairs: Dict[str, str] = {}
    targets = set()
    while len(pairs) < count:
        sentence = sampler.sentence()
        fruitless += 1
        if fruitless > MAX_FRUITLESS_DRAWS:
            raise ValueError(f"the grammar has only about {len(pairs):,} sentences; ask for fewer")
        if not all(is_natural(c) for c in (sentence.main, sentence.subordinate) if c):
            continue
        source, target = sentence.pair()
        if source not in pairs and target not in targets:
            pairs[source] = target
            targets.add(target)
            fruitless = 0
    return list(pairs.items())


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a temporary file, and rename it, so that no partial file is ever read."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    os.replace(str(partial), str(path))


def write_corpus(folder: Path, sizes: Dict[str, int], seed: int) -> None:
    """Draw all splits together, and write each as {split}.en and {split}.de."""
    pairs = draw_pairs(sum(sizes.values()), seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in sizes.items():
        part, pairs = pairs[:size], pairs[size:]
        write_lines(folder / (split + ".en"), (source for source, _ in part))
        write_lines(folder / (split + ".de"), (target for _, target in part))


def main(arguments: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, metavar="OUT", help="folder for the six files")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    for split, size in (("train", 10000), ("valid", 500), ("test", 500)):
        parser.add_argument(
            "--" + split,
            type=int,
            default=size,
            metavar="N",
            help=f"pairs in {split} (default {size})",
        )
    args = parser.parse_args(arguments)
    sizes = {split: getattr(args, split) for split in ("train", "valid", "test")}
    for split, size in sizes.items():
        if size < 1:
            sys.exit(f"--{split} {size}: must be 1 or more")
    try:
        write_corpus(args.output, sizes, args.seed)
    except (OSError, ValueError) as error:
        sys.exit(f"{args.output}: {error}")


if __name__ == "__main__":
    main()
