"""Make small sets of questions from running text, by a rule that a model can learn.

    python made_up.py spans TEXT OUT.json QUESTIONS
    python made_up.py choices TEXT OUT.json QUESTIONS

A passage has words of at least two kinds (year, month, other number, compass direction), but only
one word of each kind. The question names a kind, and the word of this kind is the answer: a span in
SQuAD's format (passages of up to 20 words), or a choice in C3's format (up to 12 words). TEXT has
one paragraph per line, with words separated by spaces, like WikiText-2.
"""

import json
import random
import re
import sys
from calendar import month_name
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

KINDS = {
    "year": re.compile(r"(?:1[5-9]|20)\d\d"),
    "number": re.compile(r"\d{1,3}"),
    "month": re.compile("|".join(month_name[1:])),
    "direction": re.compile("(?:north|south|east|west)(?:ern)?"),
}
LONGEST = {"spans": 20, "choices": 12}


def passages(path: str, longest: int) -> Iterator[Tuple[List[str], Dict[str, int]]]:
    """Yield passages of a text, each with the index of its one word of each kind."""
    for line in Path(path).read_text("utf-8").split("\n"):
        words = line.split()
        for start in range(0, len(words) - longest // 2, longest):
            part = words[start : start + longest]
            found = {
                kind: [place for place, word in enumerate(part) if pattern.fullmatch(word)]
                for kind, pattern in KINDS.items()
            }
            if all(len(at) < 2 for at in found.values()):
                places = {kind: at[0] for kind, at in found.items() if at}
                if len(places) > 1:
                    yield part, places


def main(form: str, text: str, out: str, questions: str) -> None:
    """Write the questions."""
    draw, made = random.Random(1), []
    for words, places in passages(text, LONGEST[form]):
        if len(made) == int(questions):
            break
        kind = draw.choice(list(places))
        asked: Dict[str, Any] = {"question": f"{kind} ?"}
        answer, passage = words[places[kind]], " ".join(words)
        if form == "spans":
            start = len(" ".join([*words[: places[kind]], ""]))
            asked.update(id=str(len(made)), answers=[{"text": answer, "answer_start": start}])
            made.append({"context": passage, "qas": [asked]})
        else:
            choices = [words[place] for place in places.values()]
            draw.shuffle(choices)
            made.append(
                [[passage], [{**asked, "choice": choices, "answer": answer}], str(len(made))]
            )
    content = {"data": [{"title": text, "paragraphs": made}]} if form == "spans" else made
    Path(out).write_text(json.dumps(content, ensure_ascii=False), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[1] not in LONGEST:
        sys.exit(__doc__)
    main(*sys.argv[1:])
