"""SuperGLUE's WSC, which has the sentences of GLUE's WNLI, as noun phrases to be ranked.

As in RoBERTa's section 5.1, all phrases that the file has for one pronoun compete with each other.
Pronouns without a correct phrase are left out, and here also pronouns without a wrong phrase.
"""

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple


def around(record: Dict[str, Any]) -> Tuple[str, str]:
    """The text before and the text after a record's pronoun.

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
    """For each pronoun, the text before and after it, and noun phrases, the correct one first.

    A phrase includes the space before it, for byte-level BPE.
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
            sys.exit(f"{path}: line {number}: is no WSC record ({type(error).__name__}: {error})")
    made = []
    for (left, right), phrases in asked.items():
        bare = left.rstrip()
        space = " " if bare and bare != left else ""
        wrong = list(dict.fromkeys(phrases[False]))
        for phrase in phrases[True] if wrong else ():
            made.append([bare, right, *(space + one for one in (phrase, *wrong))])
    print(f"{path}: {len(made)} correct phrases for {len(asked)} pronouns", file=sys.stderr)
    return made or sys.exit(f"{path}: has no pronoun with a correct and a wrong phrase")
