#!/usr/bin/env python3
"""Write a task for lm-evaluation-harness: which of two sentences has the correct word order?

    python word_order.py TEXT OUT [--questions N]

The first word is the context. In the wrong sentence, two neighbouring words after the context are
swapped. OUT becomes a folder with word_order.yaml and questions.jsonl, which
examples/language_model/zero_shot.py reads as well.
"""

import argparse
import json
import random
from pathlib import Path

TASK = """\
task: word_order
dataset_path: json
dataset_kwargs: {data_files: {test: QUESTIONS}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{context}}"
target_delimiter: ""
doc_to_choice: "{{choices}}"
doc_to_target: label
metric_list: [{metric: acc}]
"""


def question(sentence, draw):
    """A sentence and its copy with two words swapped, in random order; None if too short."""
    first, *words = sentence.split()
    places = [n for n in range(1, len(words)) if words[n] != words[n - 1]]
    if not places:
        return None
    at = draw.choice(places)
    right = "".join(f" {word}" for word in words)
    words[at - 1], words[at] = words[at], words[at - 1]
    choices = [right, "".join(f" {word}" for word in words)]
    draw.shuffle(choices)
    return {"context": first, "choices": choices, "label": choices.index(right)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", metavar="TEXT", help="sentences, one per line")
    parser.add_argument("out", metavar="OUT", help="the folder to write")
    parser.add_argument("--questions", type=int, default=500, metavar="N", help="(500)")
    args = parser.parse_args()
    draw, folder = random.Random(1), Path(args.out).resolve()
    lines = Path(args.text).read_text(encoding="utf-8").splitlines()
    questions = list(filter(None, (question(line, draw) for line in lines)))[: args.questions]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "questions.jsonl"
    rows = [json.dumps(row, ensure_ascii=False) + "\n" for row in questions]
    file.write_text("".join(rows), encoding="utf-8")
    task = TASK.replace("QUESTIONS", json.dumps(str(file)))
    (folder / "word_order.yaml").write_text(task, encoding="utf-8")
    print(f"wrote {len(questions)} questions and word_order.yaml to {args.out}")


if __name__ == "__main__":
    main()
