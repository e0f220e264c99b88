"""Score a language model on LAMBADA or multiple choice, without further training.

    python zero_shot.py TASK FILE MODEL [--device cuda] [--limit N] [--output ANSWERS.jsonl]

MODEL is a folder that `fairseq-posenc pack` wrote. FILE has one JSON object per line:

    lambada    {"text": "..."}: the model predicts the last word
    hellaswag  {"activity_label": "...", "ctx": "...", "endings": [...], "label": 0}
    arc        {"question": {"stem": "...", "choices": [{"text": "...", "label": "A"}, ...]},
               "answerKey": "A"}: ARC and OpenBookQA
    piqa       {"goal": "...", "sol1": "...", "sol2": "..."}; labels are in FILE-labels.lst
    choices    {"context": "...", "choices": [...], "label": 0}: anything else

The output is one JSON object. LAMBADA has `accuracy`, the percentage of last words all of whose
tokens are the most probable ones, and the `perplexity` of last words. Other tasks have
`accuracy`, the percentage of questions whose correct choice has the highest log-probability after
the context, and `accuracy_by_token`, the same with log-probabilities divided by numbers of tokens.
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

BLOCK = 64  # number of questions scored together
BATCH = 4000  # maximum tokens scored together, padding included


class Question(NamedTuple):
    """A context and its possible continuations.

    Args:
        where: file and line, for messages.
        context: the text before the choices.
        choices: the possible continuations, each with the space before it.
        label: the index of the correct choice, from 0.
    """

    where: str
    context: str
    choices: List[str]
    label: int


def field(entry: Any, name: str, kind: type, where: str) -> Any:
    """The value of the key *name* of an object; refuses a value that is not of type *kind*."""
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind):
        sys.exit(f"{where}: has no {name} that is a {kind.__name__}")
    return value


def lambada(entry: Dict[str, Any], where: str) -> Question:
    """A passage, and its last word as the only choice."""
    context, _, word = field(entry, "text", str, where).strip().rpartition(" ")
    if not context.strip():
        sys.exit(f"{where}: text: is a single word; expected a passage of several words")
    return Question(where, context.rstrip(), [f" {word}"], 0)


def hellaswag(entry: Dict[str, Any], where: str) -> Question:
    """The activity and the beginning of a description, and its possible endings."""
    activity, beginning = (field(entry, name, str, where) for name in ("activity_label", "ctx"))
    context = f"{activity}: {beginning}"
    return _question(where, context, field(entry, "endings", list, where), entry.get("label"))


def arc(entry: Dict[str, Any], where: str) -> Question:
    """A question and its choices, whose labels are letters or digits."""
    question, right = entry.get("question"), field(entry, "answerKey", str, where)
    offered = field(question, "choices", list, where)
    labels = [field(choice, "label", str, where) for choice in offered]
    found = [field(choice, "text", str, where) for choice in offered]
    if right not in labels:
        sys.exit(f"{where}: answerKey {right!r} is none of {', '.join(labels)}")
    context = f"Question: {field(question, 'stem', str, where)} Answer:"
    return _question(where, context, found, labels.index(right))


def piqa(entry: Dict[str, Any], where: str) -> Question:
    """A goal, and two ways to reach it."""
    goal, *found = (field(entry, name, str, where) for name in ("goal", "sol1", "sol2"))
    return _question(where, f"Question: {goal} Answer:", found, entry.get("label"))


def choices(entry: Dict[str, Any], where: str) -> Question:
    """Any text, and choices that may follow it."""
    context = field(entry, "context", str, where)
    return _question(where, context, field(entry, "choices", list, where), entry.get("label"))


def _question(where: str, context: str, found: Sequence[str], label: Any) -> Question:
    if len(found) < 2:
        sys.exit(f"{where}: expected a list of at least two choices")
    if not all(isinstance(text, str) and text.strip() for text in [context, *found]):
        sys.exit(f"{where}: the context and the choices have to be strings that are not empty")
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
    """Yield the questions of a published file; the first mistake ends the program with one line."""
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
    """The score of a continuation after its context.

    Args:
        log_probabilities: of each token given all tokens before it, as natural logarithms.
        greedy: whether each token is the most probable one at its position.
    """

    log_probabilities: List[float]
    greedy: bool


def first_new(context: Tensor, whole: Tensor) -> int:
    """The index of the first token of a text (T,) that differs from its context (S,).

    The subwords of the context may change if something follows the context; subwords that change
    count as part of the continuation.
    """
    shared = min(len(context), len(whole))
    differs = context[:shared].ne(whole[:shared]).nonzero()
    return int(differs[0]) if len(differs) else shared


@torch.no_grad()
def score_continuations(hub: Any, pairs: Sequence[Tuple[str, str]]) -> List[Continuation]:
    """Score continuations of contexts; each pair is split into subwords as one text.

    Texts that are too long for the model lose their beginning.

    Args:
        hub: fairseq's hub interface to a language model.
        pairs: contexts and continuations; a continuation includes the space before it.

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
                f"continuation {number} of the list has {counts[-1]} tokens; the model accepts "
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
            scored = row[end - count : end]  # row T predicts token T: inputs begin with one more
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
        for each question its place and label, and for each choice the log-probability, the number
        of tokens, and whether every token is the most probable one.
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
        # the perplexity of an untrained model may exceed the range of float
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
    parser.add_argument("--device", default="cpu", help="cpu, or a CUDA device like cuda:0 (cpu)")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N questions only")
    parser.add_argument("--output", metavar="FILE", help="write the scores of every choice to FILE")
    args = parser.parse_args(argv)
    if args.limit is not None and args.limit < 1:
        sys.exit(f"--limit {args.limit}: expected 1 or more")
    if not os.path.isfile(args.file):
        sys.exit(f"{args.file}: no such file")
    asked = list(itertools.islice(questions(args.task, args.file), args.limit))
    fairseq_posenc.register()
    hub = fairseq_posenc.from_pretrained(args.model, device=args.device)
    if not isinstance(getattr(hub, "task", None), LanguageModelingTask):
        sys.exit(f"{args.model}: is no language model; give the folder of one")
    given = list(answers(hub, iter(asked)))
    if args.output:
        lines = [json.dumps(answer) + "\n" for answer in given]
        Path(args.output).write_text("".join(lines), encoding="utf-8")
    print(json.dumps(summary(args.task, given)), file=sys.stdout)


if __name__ == "__main__":
    main()
