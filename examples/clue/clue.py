"""The classification tasks of CLUE: file formats, settings of the GAU paper, and the table.

    python clue.py extract TASK FILE FOLDER SPLIT
    python clue.py settings TASK
    python clue.py scores [--epoch last] OUT

`extract` writes FOLDER/input0/SPLIT, input1/SPLIT (for pairs) and label/SPLIT, one example
per line. FILE is a file of CLUE (one JSON object per line), or a .tsv file of sentences and label
without header. `settings` prints the settings of Table 6 for examples/glue/finetune.sh, `scores`
the table of the runs in OUT.
"""

import argparse
import json
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

import scores
import tasks
from text import fail, read_lines


class Settings(NamedTuple):
    """One column of Table 6.

    Args:
        task: names of the sentences and the label in the file, number of classes, and epochs.
        batch: examples per update.
        rate: peak learning rate.
    """

    task: tasks.Task
    batch: int
    rate: str


def _settings(names: str, classes: int, batch: int, epochs: int, rate: str) -> Settings:
    task = tasks.Task(tuple(names.split()), "label", epochs=epochs, classes=classes)
    return Settings(task, batch, rate)


CLUE: Dict[str, Settings] = {
    "AFQMC": _settings("sentence1 sentence2", 2, 16, 3, "3e-5"),
    "CSL": _settings("keyword abst", 2, 16, 4, "2e-5"),
    "IFLYTEK": _settings("sentence", 119, 32, 5, "3e-5"),
    "TNEWS": _settings("sentence", 15, 16, 3, "2e-5"),
    "WSC": _settings("text", 2, 16, 40, "1e-5"),
    "CMNLI": _settings("sentence1 sentence2", 3, 32, 3, "3e-5"),
}
TASKS = {name: settings.task for name, settings in CLUE.items()}


def marked_spans(text: str, target: Dict[str, Any]) -> str:
    """WSC's text with ``[ ]`` around the noun phrase and ``_ _`` around the pronoun."""
    spans = [
        (target[f"{name}_index"], target[f"{name}_text"], marks)
        for name, marks in (("span1", "[]"), ("span2", "__"))
    ]
    for start, span, (left, right) in sorted(spans, reverse=True):
        end = start + len(span)
        text = f"{text[:start]}{left}{text[start:end]}{right}{text[end:]}"
    return text


def from_json(task: tasks.Task, line: str) -> List[str]:
    """The sentences and the label of a line of CLUE's files."""
    record = json.loads(line)
    if "target" in record:
        record["text"] = marked_spans(record["text"], record["target"])
    cells = [record[name] for name in (*task.sentences, task.label)]
    return [" ".join(cell) if isinstance(cell, list) else str(cell) for cell in cells]


def from_tsv(task: tasks.Task, line: str) -> List[str]:
    """The same for a line of a TSV file without header."""
    cells = line.split("\t")
    if len(cells) != len(task.sentences) + 1:
        raise ValueError(f"{len(cells)} columns instead of {len(task.sentences) + 1}")
    return cells


def examples(task: tasks.Task, path: str) -> Iterator[List[str]]:
    """Yield the examples of a file, leaving out those without an agreed label."""
    read = from_tsv if path.endswith(".tsv") else from_json
    kept = dropped = 0
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            cells = [cell.strip() for cell in read(task, line.lstrip("\ufeff").rstrip("\r"))]
        except KeyError as error:
            fail(f"{path}: line {number} has no {error}; is this a file of another task?")
        except (ValueError, TypeError) as error:
            fail(f"{path}: line {number}: {error}")
        if cells[-1] in ("", "-"):
            dropped += 1
            continue
        kept += 1
        yield cells
    if not kept:
        fail(f"{path}: contains no examples")
    print(f"{path}: {kept} examples, {dropped} left out", file=sys.stderr)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", metavar="{extract,settings,scores}")
    actions.required = True
    extracting = actions.add_parser("extract", help="write sentences and labels of a file")
    settings = actions.add_parser("settings", help="print the settings for fine-tuning")
    for action in (extracting, settings):
        action.add_argument("task", choices=CLUE, metavar="TASK")
    for name in ("file", "folder", "split"):
        extracting.add_argument(name)
    table = actions.add_parser("scores", help="print the table")
    table.add_argument("--epoch", choices=["best", "last"], default="best")
    table.add_argument("out")
    args = parser.parse_args(argv)
    if args.action == "extract":
        task = TASKS[args.task]
        tasks.write_examples(task, examples(task, args.file), args.folder, args.split)
    elif args.action == "settings":
        task, batch, rate = CLUE[args.task]
        tasks.print_settings(task, "gau", batch=batch, warmup=10, epsilon="1e-8", rates=rate)
    else:
        scores.main(["--paper", "gau", "--epoch", args.epoch, args.out], TASKS)


if __name__ == "__main__":
    main()
