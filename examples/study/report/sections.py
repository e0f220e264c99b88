"""The sections of a report, each a list of paragraphs and tables in Markdown."""

import math
import shlex
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Callable, Dict, List, Optional, Sequence

import figures
import pandas as pd
from runs import Run, Study, flag_texts, losses
from seeds import interquartile
from writing import Table, ends, listing, markdown, names, number, plural, spread

#: Generated tasks that models are expected to fail; means over tasks leave them out.
CONTROLS = ("parity", "counting")
ENOUGH = 90.0  # the percentage of right outputs up to which a model is not said to break
#: Keys of the plan that concern all systems.
_SETTINGS = (
    *("recipe", "data", "generated", "budget", "match", "average"),
    *("subset", "decode", "validate", "finetune"),
)
_ALIKE = 5.0  # percent by which sizes may differ without a word in the summary

Drawn = List[str]
#: Values of each system by position, one mapping for each seed.
Series = Dict[str, List[Dict[int, float]]]


_PANELS = (
    ": mean and range over the seeds (blue), the baseline (dashed) and all others (thin lines); "
    "values far above all others are beyond the edge."
)


def picture(name: str, caption: str) -> Drawn:
    """A figure in Markdown, with its caption for all readers."""
    return [f"![{markdown(caption)}](figures/{name}.svg)", f"*{markdown(caption)}*"]


def series_of(study: Study, values: Callable[[Run], Any]) -> Dict[str, List[Any]]:
    """What each system's runs have, by system; without those that have nothing."""
    found = {name: list(filter(None, map(values, study.of(name)))) for name in study.systems}
    return {name: runs for name, runs in found.items() if runs}


def long_form(series: Series) -> pd.DataFrame:
    """Columns ``system``, ``seed``, ``x`` and ``y``, at the positions that all seeds have."""
    rows = [
        (name, seed, x, values[x])
        for name, runs in series.items()
        for seed, values in enumerate(runs)
        for x in sorted(set(values).intersection(*runs))
    ]
    return pd.DataFrame(rows, columns=["system", "seed", "x", "y"])


def by_position(caption: str, series: Series, unit: str = "") -> str:
    """A table of means ± standard deviations at all positions."""
    xs = sorted({x for runs in series.values() for one in runs for x in one})
    rows = [
        [name, *(spread([one[x] for one in runs if x in one]) for x in xs)]
        for name, runs in series.items()
    ]
    return Table(caption, ["system", *(f"{x}{unit}" for x in xs)], rows).markdown()


# --- what was compared


def differing(flags: Dict[str, Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """The flags by system without those that have the same value in all."""
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


def relative_sizes(study: Study) -> Dict[str, float]:
    """The parameters of each system, less those of the baseline, in percent of the baseline's."""
    sizes = {name: study.of(name)[0]["parameters"] for name in study.systems}
    base = sizes.get(study.baseline)
    return {name: 100 * size / base - 100 for name, size in sizes.items()} if base else {}


def percent(value: Optional[float]) -> str:
    """A share with its sign."""
    return "–" if value is None else f"{value:+.1f} %".replace("-", "−")


def compared(study: Study, _: Path) -> Drawn:
    """Systems, the flags in which they differ, and their sizes."""
    plan, relative = study.plan, relative_sizes(study)
    flags = {run["system"]: run["flags"] for run in reversed(study.runs)}
    different = differing(flags)
    about = " ".join(str(plan.get("about") or "").split())
    parts = [markdown(about)] if about else []
    told = flatten({key: plan[key] for key in _SETTINGS if plan.get(key)})
    if told:
        caption = "The keys of the plan that concern all systems."
        parts.append(Table(caption, ["key", "value"], list(told.items()), code=(1,)).markdown())
    rows = []
    for name in plan["systems"]:
        runs = study.of(name)
        size = f"{runs[0]['parameters']:,}" if runs else "–"
        text = " ".join(flag_texts(different.get(name, {})))
        done = f"{len(runs)} of {len(plan['seeds'])}"
        rows.append([name, text, size, percent(relative.get(name)), done])
    updates, tokens = (_range([run[key] for run in study.done]) for key in ("updates", "tokens"))
    caption = (
        f"Systems and the flags in which they differ; the sizes are relative to the baseline, "
        f"{study.baseline}. Seeds: {names(plan['seeds'])}; runs with the same seed saw their data "
        f"in the same order. Each trained for {updates} updates on {tokens} tokens."
    )
    header = ["system", "flags", "parameters", "relative", "runs"]
    parts.append(Table(caption, header, rows, code=(1,)).markdown())
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
    """Nested values by their names, joined with dots."""
    found: Dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found.update(flatten(value, f"{prefix}{key}."))
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            found[f"{prefix}{key}"] = "" if value == {} else shown
    return found


def warnings(study: Study) -> List[str]:
    """What a reader must know before the results, in a sentence or two."""
    told = []
    failed = [run for run in study.runs if run["status"] != "done"]
    if failed or study.missing():
        told.append(
            f"{plural(len(failed), 'run')} failed, {plural(len(study.missing()), 'run')} missing: "
            "see “Failed and missing runs”."
        )
    for measure in study.measures:
        lost = [f"{run['system']}, seed {run['seed']}" for run in study.diverged(measure.name)]
        if lost:
            told.append(
                f"No finite {measure.label}: {'; '.join(lost)}. The comparison is made without, "
                "which is to the advantage of systems whose training diverges."
            )
    relative = relative_sizes(study)
    far = max(relative, key=lambda name: abs(relative[name]), default="")
    if far and abs(relative[far]) >= _ALIKE:
        told.append(
            f"The systems have the same budget and not the same size: {far} has "
            f"{percent(relative[far])} of parameters against the baseline, {study.baseline}."
        )
    return [*told, *_of_search(study)]


# --- the search


def tried(study: Study) -> Dict[str, Dict[str, List[float]]]:
    """The losses of each seed of the search, by system and value."""
    found = {}
    for name, by_setting in (study.plan.get("tried") or {}).items():
        # studies of one seed that are older than searches with several have a number
        each = {s.partition(" ")[2]: one for s, one in by_setting.items()}
        found[name] = {v: one if isinstance(one, list) else [one] for v, one in each.items()}
    return found


def _of_search(study: Study) -> List[str]:
    """Systems whose best value is the smallest or largest, or was lucky in the search."""
    flag, values = next(iter((study.plan.get("search") or {}).items()), ("", []))
    best = {name: _best(one) for name, one in tried(study).items() if one}
    told = []
    try:
        known = sorted(map(float, values))
        at_edge = [name for name in best if float(best[name]) in (known[0], known[-1])]
    except (ValueError, IndexError):  # words have no order
        known, at_edge = [], []
    if at_edge and len(known) > 1:
        listed = names([f"{name} ({best[name]})" for name in at_edge])
        told.append(
            f"The best {flag} lies at an edge of the values tried for {listed}: a better one may "
            "lie beyond; see “Search”."
        )
    lucky = []
    for name, by_value in tried(study).items():
        others = sorted(map(mean, by_value.values()))[1:]
        found = [run["scores"]["loss"] for run in study.of(name) if "loss" in run["scores"]]
        if others and len(found) > 1 and mean(found) > others[0]:
            lucky.append(name)
    if lucky:
        told.append(
            f"The mean validation loss of {names(lucky)} over all seeds is higher than in the "
            f"search with another {flag}: the value that few seeds chose may not suit the others."
        )
    return told


def _best(by_value: Dict[str, List[float]]) -> str:
    return min(by_value, key=lambda value: mean(by_value[value]))


def search(study: Study, _: Path) -> Drawn:
    """The validation loss of each value that was tried, with the one chosen."""
    found = tried(study)
    if not any(found.values()):
        return []
    flag, values = next(iter(study.plan["search"].items()))
    rows = [
        [name, *(spread(one.get(value, [])) for value in values), _best(one) if one else ""]
        for name, one in found.items()
    ]
    caption = (
        f"Validation loss by the value of {flag}, with the first "
        f"{plural(study.plan.get('search_seeds', 1), 'seed')}; the same values for every system. "
        "All runs have the value chosen."
    )
    header = ["system", *(f"{flag} {value}" for value in values), "chosen"]
    return [Table(caption, header, rows, code=(len(header) - 1,)).markdown()]


# --- by length and by update


def generated(study: Study, folder: Path) -> Drawn:
    """Generated tasks: where each system breaks, means over tasks, and right outputs by length."""
    settings = study.plan.get("generated") or {}
    trained = {task: max(one["lengths"]) for task, one in settings.items()}
    found = series_of(
        study, lambda run: run["lengths"] if set(trained) <= set(run["lengths"]) else {}
    )
    if not trained or not found:
        return []
    told = {
        name: [{task: task_scores(run[task], trained[task]) for task in trained} for run in runs]
        for name, runs in found.items()
    }
    chosen = [task for task in trained if task not in CONTROLS] or list(trained)
    ratios = pd.DataFrame(
        {
            name: {t: mean(one[t]["breaking"] for one in told[name]) for t in trained}
            for name in told
        }
    )
    ratios.loc["mean"] = ratios.loc[chosen].mean()
    order = ratios.loc["mean"].sort_values(ascending=False, kind="stable").index
    figures.heat_map(ratios[order], folder / "breaking.svg")
    parts = picture(
        "breaking",
        f"The longest length at which, as at all shorter ones, {ENOUGH:g} % or more of the outputs "
        "are right, over the longest length of the training: mean over the seeds; systems by their "
        f"mean over {names(chosen)}.",
    )
    rows = []
    for name, runs in told.items():
        row = [name]
        for kind in ("breaking", "beyond", "within"):
            value, (low, high) = interquartile([[one[t][kind] for t in chosen] for one in runs])
            row.append(f"{number(value)}\n({ends(low, high, value)})")
        rows.append(row)
    caption = (
        f"Interquartile means over {plural(len(chosen), 'task')} and all seeds (Agarwal et al. "
        "2021), with the 95 % interval of the bootstrap that draws seeds anew for each task: the "
        "breaking length over the longest of the training, and outputs (%) that are right at "
        "lengths beyond and within those of the training. The tables above have plain means."
    )
    header = ["system", "breaking length", "right beyond (%)", "right within (%)"]
    parts.append(Table(caption, header, rows).markdown())
    for task, longest in trained.items():
        series = {name: [run[task] for run in runs] for name, runs in found.items()}
        name, what = f"lengths-{task}", f"{task}: right outputs in percent by length"
        place, scales = folder / f"{name}.svg", ("log", "linear")
        figures.panels(long_form(series), study.baseline, place, "length", scales, longest)
        parts += picture(name, f"{what}; the dotted line is the longest length of the training.")
        parts.append(by_position(f"{what}, mean ± standard deviation over the seeds.", series))
    return parts


def task_scores(by_length: Dict[int, float], trained: int) -> Dict[str, float]:
    """What is told of a task: within and beyond the training lengths, and where it breaks.

    Args:
        by_length: percentages of right outputs.
        trained: the longest length of the training.
    """
    low = [length for length, value in by_length.items() if value < ENOUGH]
    enough = [length for length in by_length if length < min(low, default=math.inf)]
    return {
        "within": mean(value for length, value in by_length.items() if length <= trained),
        "beyond": mean(value for length, value in by_length.items() if length > trained),
        "breaking": max(enough, default=0) / trained,
    }


def from_trained(study: Study, _: Path) -> Drawn:
    """What another encoding costs a trained model, and when the loss is won back."""
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
        share = f"{trained:,} ({100 * trained / runs[0]['parameters']:.1f} %)" if trained else "–"
        row = [name, spread(lost), ", ".join(map(str, back)), spread(gained), share]
        rows.append(
            [*row, number(mean(100 * run["seconds"]["train"] / run["updates"] for run in runs))]
        )
    if not rows:
        return []
    caption = (
        f"{study.baseline} begins as the trained model, whose validation loss is "
        f"{spread(list(start.values()))}. Lost: how much worse a system is at update 0, before any "
        "training. Won back: the first validated update at which its loss is that of the trained "
        "model or lower, for each seed, and – where it stays higher. Gained: how much lower its "
        "last loss is than the trained model's. Losses are in bits per token."
    )
    header = ["system", "lost", "won back at", "gained", "trained parameters", "s for 100 updates"]
    return [Table(caption, header, rows).markdown()]


def learning(study: Study, folder: Path) -> Drawn:
    """Validation losses by update, or losses of the training where few were validated."""
    for key, what in (("valid_loss", "Validation loss"), ("train_loss", "Training loss")):
        series = series_of(study, partial(_curve, key))
        if long_form(series).x.nunique() > 2:
            figures.panels(long_form(series), study.baseline, folder / "learning.svg", "update")
            return picture("learning", f"{what} by update (bits per token){_PANELS}")
    return []


def _curve(key: str, run: Run) -> Dict[int, float]:
    return {point["update"]: point[key] for point in run["curve"] if key in point}


def extrapolation(study: Study, folder: Path) -> Drawn:
    """Perplexity of contexts of several lengths."""
    series = series_of(study, lambda run: run["extrapolation"])
    if not series:
        return []
    what, place = "Perplexity by the length of the context", folder / "extrapolation.svg"
    figures.panels(long_form(series), study.baseline, place, "tokens", ("log", "log"))
    table = by_position(f"{what}, mean ± standard deviation over the seeds.", series, " tokens")
    return [*picture("extrapolation", what + _PANELS), table]


# --- time, memory, and how to repeat it


def cost(study: Study, _: Path) -> Drawn:
    """Tokens per second of the training, seconds of each stage, and memory."""
    values = {name: [_costs(run) for run in study.of(name)] for name in study.systems}
    columns = list(dict.fromkeys(key for runs in values.values() for one in runs for key in one))
    rows = [
        [name, *(spread([one[title] for one in runs if title in one]) for title in columns)]
        for name, runs in values.items()
    ]
    caption = (
        "Measured in the runs of this study, mean ± standard deviation over the seeds; runs side "
        "by side shared the machine. Memory is the peak of the training."
    )
    return [Table(caption, ["system", *columns], rows).markdown()] if columns else []


def _costs(run: Run) -> Dict[str, float]:
    seconds = run["seconds"]
    found = {"training, tokens/s": run["tokens"] / seconds["train"] if seconds.get("train") else 0}
    found.update({f"{stage}, s": value for stage, value in seconds.items()})
    found["memory, MB"] = run["peak_memory_mb"]
    return {title: value for title, value in found.items() if value}


def absent(study: Study, _: Path) -> Drawn:
    """Failed runs with the end of their logs, and runs without a result."""
    parts = [
        listing(f"{run['system']}, seed {run['seed']}: failed", run["error"] or "no message")
        for run in study.runs
        if run["status"] != "done"
    ]
    listed = "; ".join(f"{system}, seed {seed}" for system, seed in study.missing())
    return [*parts, markdown(f"Not run yet: {listed}.")] if listed else parts


def repeating(study: Study, _: Path) -> Drawn:
    """Environment and signatures; each ``result.json`` has its commands."""
    parts = []
    for title, key in (("Environment.", "environment"), ("Signatures of sacreBLEU.", "signatures")):
        found = Counter(pair for run in study.done for pair in flatten(run[key]).items())
        rows = [[*pair, str(count)] for pair, count in found.items()]
        if rows:
            parts.append(Table(title, ["name", "value", "runs"], rows, code=(1,)).markdown())
    return parts
