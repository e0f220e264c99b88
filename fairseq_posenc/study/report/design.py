"""The setting that all systems of a study share, in two sentences."""

import shlex
from typing import Any, Dict, List, Mapping

from fairseq_posenc.study.flags import words_of
from fairseq_posenc.study.report.commands import values_of
from fairseq_posenc.study.report.words import names, plural
from fairseq_posenc.study.results import Study

_MODELS = {
    "translation": "Translation models",
    "masked_lm": "Masked language models",
    "language_model": "Language models",
}
_BUDGETS = {
    "epochs": ("epoch", "{}"),
    "updates": ("update", "{}"),
    "tokens": ("token", "at least {}"),
    "hours": ("hour", "{} of training"),
}
_AVERAGED = {"epochs": "epoch", "updates": "saved checkpoint"}
_SUBSETS = {"test": "the test set", "valid": "the validation set"}


def design(study: Study) -> str:
    """The data, the budget, averaging, and how models are scored; nothing if the plan is silent.

    Args:
        study: the study, whose plan is the resolved one.
    """
    plan = study.plan
    if plan.get("recipe") not in _MODELS:
        return ""
    data = (plan.get("data") or {}).get("folder", "the same data")
    told = f"{_MODELS[plan['recipe']]}, trained on {data} for {_budget(plan['budget'])}."
    commands = next((run.commands for run in study.runs if run.done), [])
    scored = [_scored(plan.get("average") or {}, commands), *_decoded(plan, commands)]
    tasks = (plan.get("finetune") or {}).get("tasks")
    if tasks:
        epoch = plan["finetune"].get("epoch", "best")
        scored.append(
            f"fine-tuned on {names(list(tasks))} and scored there after the {epoch} epoch"
        )
    return f"{told} {', '.join(scored)}."


def _budget(budget: Mapping[str, Any]) -> str:
    ((kind, amount),) = budget.items()
    noun, form = _BUDGETS[kind]
    return form.format(f"{amount:,} {noun}{'s' * (amount != 1)}")


def _scored(average: Mapping[str, int], commands: List[str]) -> str:
    what = "The last checkpoint"
    for kind, count in average.items():
        if count > 1:
            what = f"The average of the last {plural(count, _AVERAGED[kind])}"
    flags = ("--gen-subset", "--valid-subset")
    subset = next((value for flag in flags for value in values_of(commands, flag)), "")
    return f"{what} is scored" + (f" on {_SUBSETS.get(subset, subset)}" if subset else "")


def _decoded(plan: Mapping[str, Any], commands: List[str]) -> List[str]:
    flags: Dict[str, Any] = {
        flag: value for flag in ("--beam", "--lenpen") for value in values_of(commands, flag)
    }
    flags.update(plan.get("decode") or {})
    words = " ".join(map(shlex.quote, words_of(flags)))
    return [f"decoded with {words}"] if words else []
