"""Answering the questions of a data folder with a checkpoint."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import Loaded, load
from fairseq_posenc.packs.comprehension.scores import RULES, Threshold, scores
from fairseq_posenc.packs.comprehension.span_prediction import TASK
from fairseq_posenc.packs.comprehension.span_windows import SpanWindows
from fairseq_posenc.packs.comprehension.spans import no_answer_probability


class Result(NamedTuple):
    """The answers to questions."""

    predictions: Dict[str, str]  # the text by id, empty for no answer
    no_answer: Dict[str, float]  # the probability that there is no answer, by id
    # the best answers by id, with their logits and first characters
    n_best: Dict[str, List[Dict[str, Any]]]
    scores: Optional[Dict[str, float]]  # in percent, or None without right answers


def answer_questions(
    path: str, overrides: Mapping[str, Any], split: str, batch_size: int, device: str = "cpu"
) -> Result:
    """Answer questions.

    Args:
        overrides: settings of the task by name; ``data`` is the folder of the questions.
        device: cpu or cuda.

    Raises:
        UsageError: the checkpoint or the data are of another kind.
    """
    loaded = load(path, overrides=overrides, device=device)
    task = loaded.task
    if not hasattr(task, "candidates"):
        raise UsageError(f"{path}: was not trained with --task {TASK}; fine-tune it first")
    try:
        dataset = task.load_dataset(split)
    except FileNotFoundError as error:
        raise UsageError(f"{overrides['data']}: has no split {split}") from error
    return _result(task, candidates_of(loaded, dataset, batch_size), split)


@torch.no_grad()
def candidates_of(loaded: Loaded, dataset: SpanWindows, batch_size: int) -> Tensor:
    """The rows (N, 5) of the best spans of windows, as the task's ``candidates`` gives them."""
    task, rows = loaded.task, []
    order = sorted(range(len(dataset)), key=dataset.size)
    for start in range(0, len(order), batch_size):
        sample = dataset.collater([dataset[n] for n in order[start : start + batch_size]])
        sample = loaded.move(sample)
        name = task.cfg.span_head_name
        logits, _ = loaded.model(**sample["net_input"], classification_head_name=name)
        rows.append(task.candidates(logits, sample).cpu())
    return torch.cat(rows)


def _result(task: Any, rows: Tensor, split: str) -> Result:
    result = Result({}, {}, {}, None)
    answers = {}
    for record, found in task.answers(rows):
        answers[record.id] = record.answers
        result.predictions[record.id] = found.text(task.threshold)
        result.no_answer[record.id] = found.no_answer_probability
        result.n_best[record.id] = [answer._asdict() for answer in found.best]
    if split == "test":
        return result
    # the best thresholds are of the answers given without one
    best = {key: found[0]["text"] for key, found in result.n_best.items()}
    rules = RULES[task.settings.rules]
    found = scores(result.predictions, answers, rules)
    if any(not right for right in answers.values()):
        others = scores(best, answers, rules, result.no_answer)
        for name in ("exact", "f1"):
            threshold = Threshold(others[f"best_{name}"], others[f"best_{name}_thresh"])
            # SQuAD's search for thresholds is stricter than its scores, so the threshold in use may
            # be better than all that it finds.
            used = Threshold(found[name], no_answer_probability(task.threshold))
            best_of_both = threshold if threshold.score >= used.score else used
            found[f"best_{name}"], found[f"best_{name}_thresh"] = best_of_both
    return result._replace(scores=found)
