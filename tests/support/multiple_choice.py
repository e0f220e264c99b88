"""Small files of RACE, C3, CHID, COPA and QNLI as they are published."""

import json

from support.recipes import recipe_module

choices = recipe_module("reading", "choices")

ARTICLE = {
    "article": "A cat\nsat.",
    "questions": ["Who sat?", "The _ sat."],
    "options": [["cat", "dog", "cow", "man"], ["old", "new", "big", "cat"]],
    "answers": ["A", "D"],
    "id": "high1.txt",
}
C3 = [
    [
        ["男：你好。", "女：再见。"],
        [{"question": "谁？", "choice": ["男", "女"], "answer": "女"}],
        "1",
    ],
    [["天"], [{"question": "何？", "choice": ["地", "天", "人"], "answer": "天"}], "2"],
]
CHID = {
    "content": "他#idiom#。我们#idiom#地走。",
    "candidates": [["一心一意", "二话不说"], ["三心二意", "四面八方"]],
    "groundTruth": ["二话不说", "三心二意"],
    "realCount": 2,
}


COPA = {"premise": "It rained.", "choice1": "Sun.", "choice2": "Wet.", "label": 1, "idx": 0}


QNLI = [
    ("Who?", "A cow.", "not_entailment"),
    ("Why?", "So.", "entailment"),
    ("Who?", "A cat.", "entailment"),
    *(("Why?", f"b{number}", "not_entailment") for number in (1, 2, 3, 4)),
    *(("When?", sentence, "entailment") for sentence in ("Now.", "Then.")),
    ("Where?", "No.", "not_entailment"),
    ("How?", "Yes.", "entailment"),
]


def race(folder, schools=("high",), **changes):
    for split in ("train", "dev", "test"):
        for school in schools:
            (folder / split / school).mkdir(parents=True)
            (folder / split / school / "1.txt").write_text(json.dumps({**ARTICLE, **changes}))
    return folder


def copa(folder, **changes):
    for split in ("train", "val"):
        lines = [{**COPA, "question": asked, **changes} for asked in ("cause", "effect")]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{split}.jsonl").write_text(text)
    return folder


def c3(folder, records=C3):
    for split in ("train", "dev"):
        (folder / f"{split}.json").write_text(json.dumps(records))
    return folder


def chid(folder, **changes):
    for split in ("train", "dev"):
        line = json.dumps({**CHID, **changes}, ensure_ascii=False)
        (folder / f"{split}.json").write_text(line + "\n", encoding="utf-8")
    return folder


def extracted(task, folder):
    out = folder / "out"
    choices.main(task, str(folder), str(out))
    return {
        str(path.relative_to(out)): path.read_text(encoding="utf-8").splitlines()
        for path in out.rglob("*")
        if path.is_file()
    }


def qnli(folder, *rows, header="index\tquestion\tsentence\tlabel"):
    rows = rows or QNLI
    for split in ("train", "dev"):
        lines = ["\t".join((str(number), *row)) for number, row in enumerate(rows)]
        (folder / f"{split}.tsv").write_text("\n".join([header, *lines]) + "\n")
    return folder
