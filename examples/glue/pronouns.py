"""SuperGLUE's WSC, which has the sentences of GLUE's WNLI, as noun phrases to be ranked.

As in RoBERTa's section 5.1, the phrases that are asked about the same pronoun are each other's
candidates; sentences without a right phrase are left out, and here those without a wrong one, too.
"""

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple


def around(record: Dict[str, Any]) -> Tuple[str, str]:
    """The text before and after the pronoun; the file has the number of the pronoun's first word.

    >>> span = {"span2_text": "he", "span2_index": 2}
    >>> around({"text": "She said (he left).", "target": span})
    ('She said (', ' left).')
    """
    words, target = record["text"].split(), record["target"]
    pronoun, index = target["span2_text"], target["span2_index"]
    count = len(pronoun.split())
    found = " ".join(words[index : index + count])
    start = found.lower().find(pronoun.lower())
    if start < 0:
        raise ValueError(f"word {index} is {found!r}, not {pronoun!r}")
    before, after = [*words[:index], found[:start]], [found[start + len(pronoun) :]]
    return " ".join(before), " ".join([*after, *words[index + count :]])


def examples(path: Path) -> List[List[str]]:
    """The texts before and after each pronoun, and noun phrases, the right one first.

    The space before a phrase belongs to it, for byte-level BPE.
    """
    asked: Dict[Tuple[str, str], Dict[bool, List[str]]] = {}
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            phrase = " ".join(record["target"]["span1_text"].split())
            phrases = asked.setdefault(around(record), {True: [], False: []})
            phrases[record["label"]].append(phrase)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            sys.exit(f"{path}: line {number}: is not of WSC ({type(error).__name__}: {error})")
    made = []
    for (left, right), phrases in asked.items():
        bare = left.rstrip()
        space = " " if bare and bare != left else ""
        wrong = list(dict.fromkeys(phrases[False]))
        for phrase in phrases[True] if wrong else ():
            made.append([bare, right, *(space + one for one in (phrase, *wrong))])
    print(f"{path}: {len(made)} right phrases of {len(asked)} pronouns", file=sys.stderr)
    return made or sys.exit(f"{path}: has no pronoun with a right and a wrong phrase")
