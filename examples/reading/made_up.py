r"""Make small sets of questions from running text, by rules that a model can learn.

    fairseq-posenc script made_up.py spans TEXT OUT.json [--questions 4000] [--words 20] \
        [--unanswerable 0.0]
    fairseq-posenc script made_up.py choices TEXT OUT.json [--questions 4000] [--words 20]
    fairseq-posenc script made_up.py baselines SPANS.json CHOICES.json

`spans` writes SQuAD's format. A passage has one word of each of two or more kinds (year, month,
other number, direction of the compass); the question names a kind, and that word is the answer.
With --unanswerable, that share of the questions asks for a kind of thing that the passage lacks.

`choices` writes C3's format. The question names a kind of word, and two to four choices of
different kinds come from the passage.

`baselines` prints what guessing is right of on both, in percent: any word or choice, and the kind
that is right most often.

TEXT is one paragraph a line, in words separated by spaces, such as WikiText-2.
"""

import json
import random
import re
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines, write_text
from fairseq_posenc.flags.usage import documented_parser

MONTHS = (
    "January February March April May June July August September October November December"
).split()
KINDS = {
    "year": re.compile(r"(?:1[5-9]|20)\d\d"),
    "number": re.compile(r"\d{1,3}"),
    "month": re.compile("|".join(MONTHS)),
    "direction": re.compile("north|south|east|west|northern|southern|eastern|western"),
}


def passages(path: str, longest: int) -> Iterator[List[str]]:
    """Parts of the paragraphs of a text, each a list of words."""
    for line in read_lines(path):
        words = line.split()
        for start in range(0, len(words) - longest // 2, longest):
            yield words[start : start + longest]


def places(words: Sequence[str]) -> Dict[str, List[int]]:
    """The places of the words of each kind."""
    return {
        kind: [place for place, word in enumerate(words) if pattern.fullmatch(word)]
        for kind, pattern in KINDS.items()
    }


def span_questions(
    path: str, count: int, longest: int, unanswerable: float, seed: int
) -> Dict[str, Any]:
    """Questions in SQuAD's format."""
    draw, paragraphs = random.Random(seed), []
    for words in passages(path, longest):
        if len(paragraphs) == count:
            break
        found = places(words)
        there = [kind for kind, at in found.items() if at]
        if len(there) < 2 or any(len(at) > 1 for at in found.values()):
            continue
        absent = [kind for kind in KINDS if kind not in there]
        if absent and draw.random() < unanswerable:
            entry: Dict[str, Any] = {"question": f"{draw.choice(absent)} ?"}
            entry.update(is_impossible=True, answers=[])
        else:
            kind = draw.choice(there)
            (place,) = found[kind]
            start = len(" ".join([*words[:place], ""]))
            entry = {"question": f"{kind} ?"}
            entry.update(answers=[{"text": words[place], "answer_start": start}])
        entry["id"] = f"{Path(path).stem}-{len(paragraphs)}"
        paragraphs.append({"context": " ".join(words), "qas": [entry]})
    return {"version": "made up", "data": [{"title": Path(path).stem, "paragraphs": paragraphs}]}


def choice_questions(path: str, count: int, longest: int, seed: int) -> List[Any]:
    """Questions in C3's format."""
    draw, records = random.Random(seed), []
    for words in passages(path, longest):
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
    asked = []  # kind of the question, kinds to choose from
    try:
        for paragraph in _load(spans)["data"][0]["paragraphs"]:
            (question,) = paragraph["qas"]
            if question["answers"]:
                asked.append((question["question"], paragraph["context"].split()))
        chosen = [(q["question"], q["choice"]) for _, (q,), _ in _load(choices)]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{spans} {choices}: must be what 'spans' and 'choices' wrote, in this order"
        ) from error
    result = {}
    for name, entries in (("spans", asked), ("choices", chosen)):
        kinds = Counter(question.split()[0] for question, _ in entries)
        offered = [[k for k, at in places(words).items() if at] for _, words in entries]
        best = [max(there, key=lambda kind: kinds[kind]) for there in offered]
        right = [kind == q.split()[0] for kind, (q, _) in zip(best, entries)]
        result[f"{name}: any"] = statistics.mean(1 / len(there) for there in offered)
        result[f"{name}: the most frequent kind"] = statistics.mean(right)
    return {name: round(100 * value, 2) for name, value in result.items()}


def _load(path: str) -> Any:
    return json.loads("\n".join(read_lines(path)))


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    parser.add_argument("kind", choices=["spans", "choices", "baselines"])
    parser.add_argument("text", metavar="TEXT or SPANS")
    parser.add_argument("out", metavar="OUT or CHOICES")
    parser.add_argument("--questions", type=int, default=4000)
    parser.add_argument("--words", type=int, default=20, help="most words of a passage")
    parser.add_argument("--unanswerable", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if args.kind == "baselines":
        print(json.dumps(baselines(args.text, args.out), indent=2))
        return
    if args.kind == "spans":
        content = span_questions(
            args.text, args.questions, args.words, args.unanswerable, args.seed
        )
        found = len(content["data"][0]["paragraphs"])
    else:
        content = choice_questions(args.text, args.questions, args.words, args.seed)
        found = len(content)
    if not found:
        raise UsageError(f"{args.text}: has no paragraph with such words")
    with write_text(args.out) as stream:
        json.dump(content, stream, ensure_ascii=False)
    print(f"{args.out}: {found} questions", file=sys.stderr)


if __name__ == "__main__":
    main()
