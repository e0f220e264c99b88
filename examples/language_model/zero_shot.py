"""Score a language model on published files without training: LAMBADA and multiple choice.

    python zero_shot.py TASK FILE MODEL [--device cuda] [--limit N] [--output ANSWERS.jsonl]

MODEL is a folder that `fairseq-posenc pack` wrote. FILE has one JSON object a line:

    lambada    {"text": "..."}: the last word is to be predicted
    hellaswag  {"activity_label": "...", "ctx": "...", "endings": [...], "label": 0}
    arc        {"question": {"stem": "...", "choices": [{"text": "...", "label": "A"}, ...]},
               "answerKey": "A"}: ARC and OpenBookQA
    piqa       {"goal": "...", "sol1": "...", "sol2": "..."}, the labels in FILE-labels.lst
    choices    {"context": "...", "choices": [...], "label": 0}: anything else

It prints one JSON object. Of LAMBADA: `accuracy`, the share of last words whose tokens are each the
most probable, and `perplexity` of the last word. Of the others: `accuracy`, the share of questions
whose right choice has the highest log-probability given the text before it, and
`accuracy_by_token`, the same with log-probabilities divided by the number of tokens.
"""

import itertools
import json
import math
import os
import re
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq import utils
from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import Tensor

import fairseq_posenc

BLOCK = 64  # questions that are scored together
BATCH = 4000  # most tokens that are scored together, padding included


class Question(NamedTuple):
    """A text and what may follow it.

    Args:
        where: file and line, for messages.
        context: the text.
        choices: each with the space before it.
        label: the number of the right one, from 0.
    """

    where: str
    context: str
    choices: List[str]
    label: int


def field(entry: Any, name: str, kind: type, where: str) -> Any:
    """The value of an entry of an object, which has to be of type *kind*."""
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind):
        sys.exit(f"{where}: has no {name} that is a {kind.__name__}")
    return value


def lambada(entry: Dict[str, Any], where: str) -> Question:
    """The last word of a passage."""
    context, _, word = field(entry, "text", str, where).strip().rpartition(" ")
    if not context.strip():
        sys.exit(f"{where}: a single word; expected a passage, whose last word is predicted")
    return Question(where, context.rstrip(), [f" {word}"], 0)


def hellaswag(entry: Dict[str, Any], where: str) -> Question:
    """The four endings of a description, after the activity and the beginning."""
    activity, beginning = (field(entry, name, str, where) for name in ("activity_label", "ctx"))
    context = f"{activity}: {beginning}"
    return _question(where, context, field(entry, "endings", list, where), entry.get("label"))


def arc(entry: Dict[str, Any], where: str) -> Question:
    """The choices of a question, whose labels are letters or digits."""
    question, right = entry.get("question"), field(entry, "answerKey", str, where)
    offered = field(question, "choices", list, where)
    labels = [field(choice, "label", str, where) for choice in offered]
    found = [field(choice, "text", str, where) for choice in offered]
    if right not in labels:
        sys.exit(f"{where}: answerKey {right!r} is none of {', '.join(labels)}")
    context = f"Question: {field(question, 'stem', str, where)} Answer:"
    return _question(where, context, found, labels.index(right))


def piqa(entry: Dict[str, Any], where: str) -> Question:
    """Two ways to reach a goal."""
    goal, *found = (field(entry, name, str, where) for name in ("goal", "sol1", "sol2"))
    return _question(where, f"Question: {goal} Answer:", found, entry.get("label"))


def choices(entry: Dict[str, Any], where: str) -> Question:
    """Choices after any text."""
    context = field(entry, "context", str, where)
    return _question(where, context, field(entry, "choices", list, where), entry.get("label"))


def _question(where: str, context: str, found: Sequence[str], label: Any) -> Question:
    if len(found) < 2:
        sys.exit(f"{where}: expected a list of at least two choices")
    if not all(isinstance(text, str) and text.strip() for text in [context, *found]):
        sys.exit(f"{where}: the text and the choices have to be texts that are not empty")
    if str(label) not in map(str, range(len(found))):
        sys.exit(f"{where}: label {label!r}: expected a number from 0 to {len(found) - 1}")
    return Question(where, context.rstrip(), [f" {text.strip()}" for text in found], int(label))


TASKS: Dict[str, Callable[[Dict[str, Any], str], Question]] = {
    "lambada": lambada,
    "hellaswag": hellaswag,
    "arc": arc,
    "piqa": piqa,
    "choices": choices,
}


def questions(task: str, path: str) -> Iterator[Question]:
    """The questions of a published file; leaves with one line at the first mistake."""
    beside = re.sub(r"(\.jsonl?)?$", "-labels.lst", path, count=1)
    labels = None
    if task == "piqa" and os.path.isfile(beside):
        labels = Path(beside).read_text(encoding="utf-8").split()
    count = 0
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            entry = json.loads(line)
        except ValueError as error:
            sys.exit(f"{where}: is no JSON ({error})")
        if labels is not None and count >= len(labels):
            sys.exit(f"{where}: {beside} has only {len(labels)} labels")
        count += 1
        if not isinstance(entry, dict):
            sys.exit(f"{where}: is not in the format of {task}; see --help")
        if labels is not None:
            entry["label"] = labels[count - 1]
        yield TASKS[task](entry, where)
    if not count:
        sys.exit(f"{path}: has no questions")


def _blocks(asked: Iterator[Question]) -> Iterator[List[Question]]:
    return iter(lambda: list(itertools.islice(asked, BLOCK)), [])


class Continuation(NamedTuple):
    """The score of a text that follows another.

    Args:
        log_probabilities: of each symbol of the text given all before it; natural logarithms.
        greedy: whether each symbol is the most probable one at its place.
    """

    log_probabilities: List[float]
    greedy: bool


def first_new(context: Tensor, whole: Tensor) -> int:
    """The number of tokens that a text (T,) and its beginning (S,) have in common at the start.

    The subwords of the beginning may change if something follows it; those that change belong to
    the continuation.
    """
    shared = min(len(context), len(whole))
    differs = context[:shared].ne(whole[:shared]).nonzero()
    return int(differs[0]) if len(differs) else shared


@torch.no_grad()
def score_continuations(hub: Any, pairs: Sequence[Tuple[str, str]]) -> List[Continuation]:
    """Score texts that follow others; the two are split into subwords as one text.

    Texts that are too long for the model lose their beginning.

    Args:
        hub: fairseq's hub interface to a language model.
        pairs: a text, and what follows it, with the space between them if there is one.

    Raises:
        SystemExit: a continuation has no token, or more than the model accepts.
    """
    model, longest = hub.models[0], hub.models[0].max_positions()
    contexts = {context: hub.encode(context)[:-1] for context, _ in pairs}
    texts, counts = [], []
    for number, (context, continuation) in enumerate(pairs):
        whole = hub.encode(context + continuation)
        counts.append(len(whole) - 1 - first_new(contexts[context], whole[:-1]))
        if not 0 < counts[-1] < longest:
            sys.exit(
                f"continuation {number} of the list has {counts[-1]} tokens, and the model accepts "
                f"1 to {longest - 1}"
            )
        texts.append(whole[-longest:])
    lengths = list(map(len, texts))
    dataset = hub.task.build_dataset_for_inference(texts, lengths)
    order = sorted(range(len(texts)), key=lengths.__getitem__, reverse=True)
    found: Dict[int, Continuation] = {}
    while order:
        some = max(BATCH // lengths[order[0]], 1)
        batch, order = order[:some], order[some:]
        inputs = dataset.collater([dataset[number] for number in batch])["net_input"]
        inputs = utils.apply_to_sample(lambda tensor: tensor.to(hub.device), inputs)
        rows = model.get_normalized_probs(model(**inputs), log_probs=True).cpu()
        for row, number in zip(rows, batch):
            end, count = lengths[number] - 1, counts[number]
            scored = row[end - count : end]  # row T predicts token T: the input has one more
            tokens = texts[number][end - count : end]
            values = scored.gather(1, tokens[:, None])[:, 0].tolist()
            found[number] = Continuation(values, bool(scored.argmax(1).eq(tokens).all()))
    return [found[number] for number in range(len(texts))]


def answers(hub: Any, asked: Iterator[Question]) -> Iterator[Dict[str, Any]]:
    """Score each choice of each question.

    Args:
        hub: fairseq's hub interface to a language model.
        asked: the questions.

    Returns:
        for each question its place, its label, and of each choice the log-probability, the number
        of tokens, and whether they are the most probable ones.
    """
    for block in _blocks(asked):
        pairs = [(question.context, choice) for question in block for choice in question.choices]
        scored = iter(score_continuations(hub, pairs))
        for question in block:
            found = [next(scored) for _ in question.choices]
            yield {
                "where": question.where,
                "label": question.label,
                "log_probabilities": [math.fsum(each.log_probabilities) for each in found],
                "tokens": [len(each.log_probabilities) for each in found],
                "greedy": [each.greedy for each in found],
            }


def _best(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def summary(task: str, given: Sequence[Dict[str, Any]]) -> Dict[str, float]:
    """Accuracies in percent; for LAMBADA, also the perplexity of the last word."""
    count = len(given)
    if task == "lambada":
        mean = math.fsum(answer["log_probabilities"][0] for answer in given) / count
        right = sum(answer["greedy"][0] for answer in given)
        # the perplexity of a model that knows nothing may be too large for a number
        perplexity = math.exp(-mean) if -mean < 700 else math.inf
        return {"words": count, "accuracy": 100 * right / count, "perplexity": perplexity}
    plain = by_token = 0
    for answer in given:
        values, tokens = answer["log_probabilities"], answer["tokens"]
        plain += _best(values) == answer["label"]
        means = [value / length for value, length in zip(values, tokens)]
        by_token += _best(means) == answer["label"]
    return {
        "questions": count,
        "accuracy": 100 * plain / count,
        "accuracy_by_token": 100 * by_token / count,
    }


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("file")
    parser.add_argument("model", help="a model folder")
    parser.add_argument("--device", default="cpu", help="cpu, or a device of CUDA (cpu)")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N questions only")
    parser.add_argument("--output", metavar="FILE", help="write the scores of every choice")
    args = parser.parse_args(argv)
    if args.limit is not None and args.limit < 1:
        sys.exit(f"--limit {args.limit}: expected 1 or more")
    if not os.path.isfile(args.file):
        sys.exit(f"{args.file}: no such file")
    asked = list(itertools.islice(questions(args.task, args.file), args.limit))
    fairseq_posenc.register()
    hub = fairseq_posenc.from_pretrained(args.model, device=args.device)
    if not isinstance(getattr(hub, "task", None), LanguageModelingTask):
        sys.exit(f"{args.model}: is no language model; give a folder of `fairseq-posenc pack`")
    given = list(answers(hub, iter(asked)))
    if args.output:
        lines = [json.dumps(answer) + "\n" for answer in given]
        Path(args.output).write_text("".join(lines), encoding="utf-8")
    print(json.dumps(summary(args.task, given)), file=sys.stdout)


if __name__ == "__main__":
    main()
