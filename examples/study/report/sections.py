"""The sections of a report; each section is a list of Markdown paragraphs and tables."""

import math
import shlex
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Callable, Dict, List, Sequence

import figures
import pandas as pd
from limits import curve, search
from runs import Run, Study, flag_texts, losses
from seeds import interval
from writing import Table, listing, markdown, names, number, spread

#: Generated tasks that models are expected to fail; they are left out of means over tasks.
CONTROLS = ("parity", "counting")
ENOUGH = 90.0  # percent; a model breaks at the first length with fewer correct outputs
_SETTINGS = ("budget", "average", "decode", "validate")  # settings of the plan for all systems

Drawn = List[str]
#: For each system, one mapping from x to y values per seed.
Series = Dict[str, List[Dict[int, float]]]


def picture(name: str, caption: str) -> str:
    """A figure in Markdown."""
    return f"![{markdown(caption)}](figures/{name}.svg)"


def series_of(study: Study, values: Callable[[Run], Any]) -> Dict[str, List[Any]]:
    """The values of each system's runs, without runs and systems that have no values."""
    found = {name: list(filter(None, map(values, study.of(name)))) for name in study.systems}
    return {name: runs for name, runs in found.items() if runs}


def long_form(series: Series) -> pd.DataFrame:
    """Columns ``system``, ``seed``, ``x`` and ``y``, at the x values that all seeds have."""
    rows = [
        (name, seed, x, values[x])
        for name, runs in series.items()
        for seed, values in enumerate(runs)
        for x in sorted(set(values).intersection(*runs))
    ]
    return pd.DataFrame(rows, columns=["system", "seed", "x", "y"])


# --- what was compared


def differing(flags: Dict[str, Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """The flags of each system, without flags that have the same value in all systems."""
    first = next(iter(flags.values()), {})
    shared = {
        flag
        for flag in first
        if len(flags) > 1 and all(one.get(flag, math.nan) == first[flag] for one in flags.values())
    }
    return {
        name: {flag: value for flag, value in one.items() if flag not in shared}
        for name, one in flags.items()
    }


def compared(study: Study) -> Drawn:
    """Seeds, budget and settings, and the systems with their differing flags and sizes."""
    plan = study.plan
    flags = {run["system"]: run["flags"] for run in reversed(study.runs)}
    different = differing(flags)
    updates, tokens = (_range([run[key] for run in study.done]) for key in ("updates", "tokens"))
    told = flatten({key: plan[key] for key in _SETTINGS if plan.get(key)})
    settings = "; ".join(f"{key} {value}" for key, value in told.items())
    parts = [
        f"Seeds {names(plan['seeds'])}; runs with the same seed, data and batch size read the same "
        f"batches in the same order. Each run trained for {updates} updates on {tokens} tokens.",
        f"Settings of the plan: `{settings}`.",
        *([searched] if (searched := search(study)) else []),
    ]
    rows = []
    for name in plan["systems"]:
        runs = study.of(name)
        size = f"{runs[0]['parameters']:,}" if runs else "–"
        rows.append([name, " ".join(flag_texts(different.get(name, {}))), size])
    caption = "Systems: the flags in which they differ, and their parameters."
    parts.append(Table(caption, ["system", "flags", "parameters"], rows, code=(1,)).markdown())
    base: Sequence[str] = next((run["base"] for run in study.runs), [])
    shared = {
        flag: value
        for flag, value in next(iter(flags.values()), {}).items()
        if all(flag not in one for one in different.values())
    }
    common = " ".join([*map(shlex.quote, base), *flag_texts(shared)])
    return [*parts, listing("Flags of all systems", common)] if common else parts


def _range(values: Sequence[int]) -> str:
    return " to ".join(f"{one:,}" for one in sorted({min(values), max(values)})) if values else "–"


def flatten(values: Dict[str, Any], prefix: str = "") -> Dict[str, str]:
    """Flatten a nested mapping; keys are joined with dots, values become text."""
    found: Dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found.update(flatten(value, f"{prefix}{key}."))
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            found[f"{prefix}{key}"] = "" if value == {} else shown
    return found


# --- by length and by update


def generated(study: Study, folder: Path) -> Drawn:
    """Generated tasks: where each system breaks, and correct outputs at each length."""
    settings = study.plan.get("generated") or {}
    trained = {task: max(one["lengths"]) for task, one in settings.items()}
    found = series_of(
        study, lambda run: run["lengths"] if set(trained) <= set(run["lengths"]) else {}
    )
    if not trained or not found:
        return []
    ratios = pd.DataFrame(
        {
            name: {t: mean(breaking(run[t], trained[t]) for run in runs) for t in trained}
            for name, runs in found.items()
        }
    )
    chosen = [task for task in trained if task not in CONTROLS] or list(trained)
    ratios.loc["mean"] = ratios.loc[chosen].mean()
    order = ratios.loc["mean"].sort_values(ascending=False, kind="stable").index
    figures.heat_map(ratios[order], folder / "breaking.svg")
    caption = (
        f"The longest length up to which {ENOUGH:g}% or more of the outputs are correct at every "
        "length, divided by the longest training length; systems in the order of their mean over "
        f"{names(chosen)}"
    )
    parts = [picture("breaking", caption)]
    for task, longest in trained.items():
        series = {name: [run[task] for run in runs] for name, runs in found.items()}
        place = folder / f"lengths-{task}.svg"
        figures.panels(
            long_form(series), study.baseline, place, "length", ("log", "linear"), longest
        )
        parts.append(picture(f"lengths-{task}", f"{task}: correct outputs in percent by length"))
    return parts


def breaking(by_length: Dict[int, float], trained: int) -> float:
    """The length up to which a model does not break, divided by the longest training length.

    Args:
        by_length: the percentage of correct outputs at each length.
        trained: the longest training length.
    """
    low = [length for length, value in by_length.items() if value < ENOUGH]
    enough = [length for length in by_length if length < min(low, default=math.inf)]
    return max(enough, default=0) / trained


def from_trained(study: Study) -> Drawn:
    """How many bits a trained model loses with another encoding, and when it wins them back."""
    start = {run["seed"]: losses(run)[0] for run in study.of(study.baseline) if losses(run)}
    rows = []
    for name in study.systems:
        runs = [run for run in study.of(name) if losses(run) and run["seed"] in start]
        if not runs:
            continue
        lost = [losses(run)[0] - start[run["seed"]] for run in runs]
        back = [
            min((u for u, one in losses(run).items() if one <= start[run["seed"]]), default="–")
            for run in runs
        ]
        gained = [start[run["seed"]] - losses(run)[max(losses(run))] for run in runs]
        trained = max(run["trained"] for run in runs)
        share = f"{100 * trained / runs[0]['parameters']:.1f}%" if trained else "–"
        rows.append([name, spread(lost), ", ".join(map(str, back)), spread(gained), share])
    if not rows:
        return []
    caption = (
        f"{study.baseline} begins as the trained model, whose validation loss is "
        f"{spread(list(start.values()))}. Lost: how much worse a system is before any training. "
        "Won back: for each seed, the first validated update at which the loss is at most the "
        "trained model's. Gained: how much lower the last loss is. In bits per token."
    )
    header = ["system", "lost", "won back at", "gained", "trained"]
    return [Table(caption, header, rows).markdown()]


def learning(study: Study, folder: Path) -> Drawn:
    """Plot validation losses by update, or training losses if there are few validations."""
    for key, what in (("valid_loss", "Validation loss"), ("train_loss", "Training loss")):
        series = series_of(study, partial(curve, key))
        if long_form(series).x.nunique() > 2:
            figures.panels(long_form(series), study.baseline, folder / "learning.svg", "update")
            return [picture("learning", f"{what} by update (bits per token)")]
    return []


def budgets(study: Study, folder: Path) -> Drawn:
    """Plot each system's difference from the baseline against the update that was scored."""
    first, *others = (measure.name for measure in study.measures)
    ends = (part.partition("@")[2] for part in study.plan.get("subset") or ())
    updates = {f"{first}_{end}": int(end) for end in ends if f"{first}_{end}" in others}
    if not updates or study.baseline not in study.systems:
        return []
    updates[first] = max(run["updates"] for run in study.done)
    tables = []
    for name, update in updates.items():
        scores = study.scores(name).pivot(index="seed", columns="system", values="score")
        gaps = scores.sub(scores[study.baseline], axis="index")
        tables.append(gaps.melt(value_name="y", ignore_index=False).reset_index().assign(x=update))
    data = pd.concat(tables).dropna().sort_values("x")
    place = folder / "budgets.svg"
    figures.panels(data, study.baseline, place, "update", spread=interval)
    label = study.measures[0].label
    caption = f"{label}: difference from {study.baseline} by update, with 95 % intervals"
    return [picture("budgets", caption)]


def extrapolation(study: Study, folder: Path) -> Drawn:
    """Perplexity at each context length, as a plot and a table."""
    series = series_of(study, lambda run: run["extrapolation"])
    if not series:
        return []
    what, place = "Perplexity by the length of the context", folder / "extrapolation.svg"
    figures.panels(long_form(series), study.baseline, place, "tokens", ("log", "log"))
    xs = sorted({x for runs in series.values() for one in runs for x in one})
    rows = []
    for name, runs in series.items():
        values = ([one[x] for one in runs if x in one] for x in xs)
        rows.append([name, *(number(mean(each)) if each else "–" for each in values)])
    header = ["system", *(f"{x} tokens" for x in xs)]
    table = Table(f"{what}, means over the seeds.", header, rows).markdown()
    return [picture("extrapolation", what), table]


# --- speed and memory, failures, and how to repeat it


def cost(study: Study) -> Drawn:
    """The slowest and fastest training, and the trainings with the least and the most memory."""
    told = []
    for title, unit, value in (
        ("Training", "tokens/s", lambda run: run["tokens"] / run["seconds"]["train"]),
        ("Peak of memory", "MB", lambda run: run["peak_memory_mb"]),
    ):
        runs = series_of(study, lambda run: run if run["seconds"].get("train") else None)
        means = {name: mean(map(value, each)) for name, each in runs.items()}
        if any(means.values()):
            least, most = (best(means, key=lambda one: means[one]) for best in (min, max))
            told.append(
                f"{title}: {means[least]:,.0f} ({least}) to {means[most]:,.0f} {unit} ({most})."
            )
    return [markdown(" ".join([*told, "Jobs shared the machine."]))] if told else []


def absent(study: Study) -> Drawn:
    """Failed runs with the end of their logs, and runs without a result."""
    parts = [
        listing(f"{run['system']}, seed {run['seed']}: failed", run["error"] or "no message")
        for run in study.runs
        if run["status"] != "done"
    ]
    listed = "; ".join(f"{system}, seed {seed}" for system, seed in study.missing())
    return [*parts, markdown(f"Not run yet: {listed}.")] if listed else parts


def repeating(study: Study) -> Drawn:
    """Where the files with all scores are, the environment, and sacreBLEU's signatures."""
    parts = [
        "`results.csv` has all scores by run, `differences.csv` the tests of all pairs, and each "
        "run's `result.json` its commands and learning curve."
    ]
    for title, key in (("Environment", "environment"), ("Signatures of sacreBLEU", "signatures")):
        found = Counter(pair for run in study.done for pair in flatten(run[key]).items())
        told = "; ".join(
            f"{name} {value}" + (f" ({count} runs)" if count < len(study.done) else "")
            for (name, value), count in found.items()
        )
        parts += [markdown(f"{title}: {told}.")] if told else []
    return parts
