"""The weaknesses of a study that its report has to state, such as unfinished training."""

from statistics import mean
from typing import Dict, List, Optional

from runs import Run, Study
from writing import markdown, names, number, plural

_ALIKE = 5.0  # sizes may differ by this many percent without a warning


def relative_sizes(study: Study) -> Dict[str, float]:
    """By how many percent each system has more parameters than the baseline."""
    sizes = {name: study.of(name)[0]["parameters"] for name in study.systems}
    base = sizes.get(study.baseline)
    return {name: 100 * size / base - 100 for name, size in sizes.items()} if base else {}


def percent(value: Optional[float]) -> str:
    """A percentage with its sign."""
    return "–" if value is None else f"{value:+.1f}%".replace("-", "−")


def shortcomings(study: Study) -> List[str]:
    """The weaknesses of a study, in a sentence or two each."""
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
                f"No finite {measure.label}: {'; '.join(lost)}. The comparison leaves these runs "
                "out, which favours systems whose training diverges."
            )
    relative = relative_sizes(study)
    far = max(relative, key=lambda name: abs(relative[name]), default="")
    if far and abs(relative[far]) >= _ALIKE:
        told.append(
            f"The budget is the same, but sizes differ: {far} has {percent(relative[far])} "
            f"parameters compared with {study.baseline}."
        )
    return [*told, *_of_search(study), *_unfinished(study)]


def _unfinished(study: Study) -> List[str]:
    """The decrease of the loss from about three quarters of the updates to the end."""
    falls: Dict[str, float] = {}
    place = (0, 0)
    for name in study.systems:
        curves = [curve("valid_loss", run) for run in study.of(name)]
        starts = [max((u for u in one if 4 * u <= 3 * max(one)), default=0) for one in curves]
        if all(starts):
            falls[name] = mean(one[u] - one[max(one)] for u, one in zip(starts, curves))
            place = starts[0], max(curves[0])
    if not falls or max(falls.values()) < 0.005:
        return []
    least, most = min(falls, key=lambda one: falls[one]), max(falls, key=lambda one: falls[one])
    return [
        "Training had not ended: the validation loss fell by "
        f"{number(falls[least])} ({least}) to {number(falls[most])} ({most}) bits per token from "
        f"update {place[0]:,.0f} to {place[1]:,.0f}."
    ]


def tried(study: Study) -> Dict[str, Dict[str, List[float]]]:
    """The losses of the search, one for each seed, keyed by system and value."""
    found = {}
    for name, by_setting in (study.plan.get("tried") or {}).items():
        # older studies, whose searches had one seed, have a number instead of a list
        each = {s.partition(" ")[2]: one for s, one in by_setting.items()}
        found[name] = {v: one if isinstance(one, list) else [one] for v, one in each.items()}
    return found


def _of_search(study: Study) -> List[str]:
    """Warnings about the search: best values at its edges, or chosen by luck."""
    flag, values = next(iter((study.plan.get("search") or {}).items()), ("", []))
    best = {name: lowest(one) for name, one in tried(study).items() if one}
    told = []
    try:
        known = sorted(map(float, [*values, *study.plan.get("search_edges", [])]))
        at_edge = [name for name in best if float(best[name]) in (known[0], known[-1])]
    except (ValueError, IndexError):  # values that are not numbers have no order
        known, at_edge = [], []
    if at_edge and len(known) > 1:
        told.append(
            f"For {len(at_edge)} of {len(best)} systems the best {flag} is the lowest or highest "
            "tried: a better one may lie beyond."
        )
    lucky = []
    for name, by_value in tried(study).items():
        others = sorted(map(mean, by_value.values()))[1:]
        found = [run["scores"]["loss"] for run in study.of(name) if "loss" in run["scores"]]
        if others and len(found) > 1 and mean(found) > others[0]:
            lucky.append(name)
    if lucky:
        told.append(
            f"For {len(lucky)} of {len(best)} systems the validation loss over all seeds is higher "
            f"than the loss of another {flag} in the search: the choice may have been luck."
        )
    first = study.measures[0].name if study.measures else ""
    if best and first in ("loss", "perplexity") and not study.plan.get("subset"):
        told.append(f"The scored text also served to choose {flag}.")
    return told


def lowest(by_value: Dict[str, List[float]]) -> str:
    """The value with the lowest mean loss."""
    return min(by_value, key=lambda value: mean(by_value[value]))


def search(study: Study) -> str:
    """The values and seeds of the search, in a sentence."""
    if not any(tried(study).values()):
        return ""
    flag, values = next(iter(study.plan["search"].items()))
    seeds, edges = study.plan.get("search_seeds", 1), study.plan.get("search_edges")
    # studies of version 0.2 have a number of seeds instead of a list
    told = plural(seeds, "seed") if isinstance(seeds, int) else f"seeds {names(seeds)}"
    more = f", and {' or '.join(edges)} if the best was next to it" if edges else ""
    return markdown(
        f"Search: each system tried {flag} {names(values)} with {told}{more}; its runs have the "
        "value with the lowest validation loss."
    )


def curve(key: str, run: Run) -> Dict[int, float]:
    """The loss *key* of a run, keyed by update."""
    return {point["update"]: point[key] for point in run["curve"] if key in point}
