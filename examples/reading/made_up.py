"""Make small sets of questions from running text, by rules that a model can learn.

    python made_up.py spans TEXT OUT.json [--questions 4000] [--unanswerable 0.0] [--seed 1]
    python made_up.py choices TEXT OUT.json [--questions 4000] [--seed 1]
    python made_up.py baselines SPANS.json CHOICES.json

`spans` writes SQuAD's format. A passage has two or more years, and two or more other numbers; the
question asks for the first or the last year or number. So a model needs the question, the kind of
a word and the order of words; picking any word of the right kind is right half of the time or
less. With --unanswerable, that share of the questions asks for a month in a passage without one.

`choices` writes C3's format. The question names a kind of word (year, month, other number,
direction of the compass), and two to four options of different kinds come from the passage.

`baselines` prints what guessing is right of on both, in percent: any word of the kind that is asked
for, any choice, and the kind of choice that is right most often.

TEXT is one paragraph a line, in words separated by spaces, such as WikiText-2.
"""

import argparse
import json
import random
import re
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from text import atomic_writer, fail, read_lines

LONGEST = 32  # words of a passage
MONTHS = (
    "January February March April May June July August September October November December"
).split()
KINDS = {
    "year": re.compile(r"(?:1[5-9]|20)\d\d"),
    "number": re.compile(r"\d{1,3}"),
    "month": re.compile("|".join(MONTHS)),
    "direction": re.compile("north|south|east|west|northern|southern|eastern|western"),
}


def passages(path: str) -> Iterator[List[str]]:
    """Parts of the paragraphs of a text, each a list of words."""
    for line in read_lines(path):
        words = line.split()
        for start in range(0, len(words) - LONGEST // 2, LONGEST):
            yield words[start : start + LONGEST]


def places(words: Sequence[str]) -> Dict[str, List[int]]:
    """The places of the words of each kind."""
    return {
        kind: [place for place, word in enumerate(words) if pattern.fullmatch(word)]
        for kind, pattern in KINDS.items()
    }


def span_questions(path: str, count: int, unanswerable: float, seed: int) -> Dict[str, Any]:
    """Questions in SQuAD's format."""
    draw, paragraphs = random.Random(seed), []
    for words in passages(path):
        found = places(words)
        if len(paragraphs) == count:
            break
        kinds = [kind for kind in ("year", "number") if len(found[kind]) > 1]
        number = len(paragraphs)
        if not found["month"] and kinds and draw.random() < unanswerable:
            entry = {"question": f"{draw.choice(['first', 'last'])} month ?"}
            entry.update(is_impossible=True, answers=[])
        elif kinds:
            kind, which = draw.choice(kinds), draw.choice(("first", "last"))
            place = found[kind][0 if which == "first" else -1]
            start = len(" ".join([*words[:place], ""]))
            entry = {"question": f"{which} {kind} ?"}
            entry.update(answers=[{"text": words[place], "answer_start": start}])
        else:
            continue
        entry["id"] = f"{Path(path).stem}-{number}"
        paragraphs.append({"context": " ".join(words), "qas": [entry]})
    return {"version": "made up", "data": [{"title": Path(path).stem, "paragraphs": paragraphs}]}


def choice_questions(path: str, count: int, seed: int) -> List[Any]:
    """Questions in C3's format."""
    draw, records = random.Random(seed), []
    for words in passages(path):
        found = {kind: at for kind, at in places(words).items() if at}
        if len(found) < 2:
            continue
        if len(records) == count:
            break
        options = {kind: words[draw.choice(at)] for kind, at in found.items()}
        kind = draw.choice(list(options))
        choices = list(options.values())
        draw.shuffle(choices)
        question = {"question": f"{kind} ?", "choice": choices, "answer": options[kind]}
        records.append([[" ".join(words)], [question], f"{Path(path).stem}-{len(records)}"])
    return records


def baselines(spans: str, choices: str) -> Dict[str, float]:
    """Accuracy of guessing, in percent."""
    guessed = []
    for paragraph in _load(spans)["data"][0]["paragraphs"]:
        (asked,) = paragraph["qas"]
        found = places(paragraph["context"].split())[asked["question"].split()[1]]
        guessed.append(1 / len(found) if found else 1.0)
    questions = [asked for _, (asked,), _ in _load(choices)]
    kinds = Counter(asked["question"].split()[0] for asked in questions)

    def offers(asked: Dict[str, Any], kind: str) -> bool:
        return any(KINDS[kind].fullmatch(choice) for choice in asked["choice"])

    def blind(asked: Dict[str, Any]) -> bool:
        best = next(kind for kind, _ in kinds.most_common() if offers(asked, kind))
        return KINDS[best].fullmatch(asked["answer"]) is not None

    found = {
        "spans: any word of the kind": statistics.mean(guessed),
        "choices: any": statistics.mean(1 / len(asked["choice"]) for asked in questions),
        "choices: the most frequent kind": statistics.mean(map(blind, questions)),
    }
    return {name: round(100 * value, 2) for name, value in found.items()}


def _load(path: str) -> Any:
    return json.loads("\n".join(read_lines(path)))


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["spans", "choices", "baselines"])
    parser.add_argument("text", metavar="TEXT or SPANS")
    parser.add_argument("out", metavar="OUT or CHOICES")
    parser.add_argument("--questions", type=int, default=4000)
    parser.add_argument("--unanswerable", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if args.kind == "baselines":
        print(json.dumps(baselines(args.text, args.out), indent=2))
        return
    if args.kind == "spans":
        content = span_questions(args.text, args.questions, args.unanswerable, args.seed)
        found = len(content["data"][0]["paragraphs"])
    else:
        content = choice_questions(args.text, args.questions, args.seed)
        found = len(content)
    if not found:
        fail(f"{args.text}: has no paragraph with such words")
    with atomic_writer(args.out) as stream:
        json.dump(content, stream, ensure_ascii=False)
    print(f"{args.out}: {found} questions", file=sys.stderr)


if __name__ == "__main__":
    main()
