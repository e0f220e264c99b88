"""Answers the questions of a data folder with a checkpoint."""

from typing import Any, Dict, Mapping

from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import load
from fairseq_posenc.packs.comprehension.scores import RULES, Threshold, scores
from fairseq_posenc.packs.comprehension.span_prediction import TASK
from fairseq_posenc.packs.comprehension.spans import no_answer_probability


def answer_questions(
    path: str, overrides: Mapping[str, Any], split: str, batch_size: int, device: str = "cpu"
) -> Dict[str, Dict[str, Any]]:
    """Answer the questions of a split; return the content of each file to write, keyed by name.

    *overrides* maps names of task settings to values; one of them, ``data``, is the data folder.

    Raises:
        UsageError: the checkpoint is not of this task, or the data folder lacks the split.
    """
    loaded = load(path, overrides=overrides, device=device)
    task = loaded.task
    if not hasattr(task, "candidates"):
        raise UsageError(f"{path}: was not trained with --task {TASK}; fine-tune it first")
    try:
        dataset = task.load_dataset(split)
    except FileNotFoundError as error:
        raise UsageError(f"{overrides['data']}: has no split {split}") from error
    return _files(task, task.rows_of(loaded.model, dataset, batch_size), split)


def _files(task: Any, rows: Tensor, split: str) -> Dict[str, Dict[str, Any]]:
    replies = list(task.answers(rows))
    answers = {record.id: record.answers for record, _ in replies}
    predictions = {record.id: answered.text(task.threshold) for record, answered in replies}
    odds = {record.id: answered.no_answer_probability for record, answered in replies}
    best = {record.id: [each._asdict() for each in answered.best] for record, answered in replies}
    files: Dict[str, Dict[str, Any]] = {"predictions": predictions, "na_prob": odds, "nbest": best}
    if split == "test":
        return files
    rules = RULES[task.settings.rules]
    files["scores"] = total = scores(predictions, answers, rules)
    if any(not right for right in answers.values()):
        # the threshold search needs an answer to every question, even where none is predicted
        first = {key: texts[0]["text"] for key, texts in best.items()}
        others = scores(first, answers, rules, odds)
        for name in ("exact", "f1"):
            # The threshold search counts some predictions as wrong that exact match and F1 count
            # as correct.  So the threshold in use may score higher than the best one found.
            tried = Threshold(others[f"best_{name}"], others[f"best_{name}_thresh"])
            used = Threshold(total[name], no_answer_probability(task.threshold))
            higher = max(tried, used, key=lambda threshold: threshold.score)
            total[f"best_{name}"], total[f"best_{name}_thresh"] = higher
    return files
