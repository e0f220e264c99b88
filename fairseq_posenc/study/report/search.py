"""The search before the runs: what was tried and chosen, what is at an edge, what was luck."""

from statistics import mean
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from fairseq_posenc.study.report.document import Section, Table, names, spread
from fairseq_posenc.study.report.figures import Curve, small_multiples
from fairseq_posenc.study.results import Study
from fairseq_posenc.study.statistics import summarise

TITLE = "Search"
Losses = Dict[str, List[float]]  # of each seed, by value


def search_section(study: Study) -> Section:
    """The validation loss of each value that was tried, with the one chosen."""
    tried = _tried(study)
    if not any(tried.values()):
        return Section(TITLE, [])
    flag, values = next(iter(study.plan["search"].items()))
    rows, chosen = [], len(values) + 1
    for name, losses in tried.items():
        shown = [spread(summarise(losses[v]) if v in losses else None) for v in values]
        rows.append([name, *shown, _best(losses) or ""])
    seeds, several = _seeds(study)
    told = f"mean ± standard deviation over {seeds}" if several else f"with {seeds}"
    caption = (
        f"Validation loss by the value of {flag}, {told}; the same values for every system. All "
        "runs have the value chosen."
    )
    header = ["system", *(f"{flag} {value}" for value in values), "chosen"]
    parts: List[Any] = [Table(caption, header, rows, text=(chosen,), code=(chosen,))]
    curves = {name: line for name, line in zip(tried, map(_curve, tried.values())) if line}
    if curves:
        what, labels = f"Validation loss by {flag}", (flag, "validation loss (bits per token)")
        parts.append(
            small_multiples(
                "search", what, curves, study.baseline, labels, ("log", "linear"),
                front=f"mean and range over {seeds} (blue line and band)" if several
                else f"with {seeds} (blue line)",
                note="Losses far above all others are beyond the edge.",
            )
        )  # fmt: skip
    return Section(TITLE, parts)


def edges(study: Study) -> List[str]:
    """A sentence on the systems whose best value is the smallest or the largest that was tried."""
    search: Dict[str, List[str]] = study.plan.get("search") or {}
    numbers = [_float(value) for values in search.values() for value in values]
    known = sorted(value for value in numbers if value is not None)
    if len(known) < max(2, len(numbers)):  # one value has no edge, and words have no order
        return []
    best = {name: _best(losses) for name, losses in _tried(study).items()}
    at_edge = [
        f"{name} ({value})"
        for name, value in best.items()
        if value and _float(value) in (known[0], known[-1])
    ]
    if not at_edge:
        return []
    return [
        f"The best {next(iter(search))} lies at an edge of the values tried for {names(at_edge)}: "
        f"a better one may lie beyond; see “{TITLE}”."
    ]


def lucky_choices(study: Study) -> List[str]:
    """A sentence on systems that do worse over all seeds than another value did in the search."""
    lucky = []
    for name, losses in _tried(study).items():
        others = sorted(map(mean, losses.values()))[1:]
        found = [run.scores["loss"] for run in study.of(name) if "loss" in run.scores]
        if others and len(found) > 1 and mean(found) > others[0]:
            lucky.append(name)
    if not lucky:
        return []
    return [
        f"The mean validation loss of {names(lucky)} over all seeds is higher than in the search "
        f"with another {next(iter(study.plan['search']))}: the value that few seeds chose may not "
        f"suit the others; see “{TITLE}”."
    ]


def _seeds(study: Study) -> Tuple[str, bool]:
    """The seeds that tried each value, and whether there are several."""
    number = study.plan.get("search_seeds", 1)
    return ("the first seed", False) if number == 1 else (f"the first {number} seeds", True)


def _tried(study: Study) -> Dict[str, Losses]:
    """Losses by system and by value."""
    return {
        # studies of one seed that are older than searches with several have a number
        name: {setting.partition(" ")[2]: [*np.atleast_1d(each)] for setting, each in found.items()}
        for name, found in (study.plan.get("tried") or {}).items()
    }


def _best(losses: Losses) -> Optional[str]:
    return min(losses, key=lambda value: mean(losses[value]), default=None)


def _curve(losses: Losses) -> Optional[Curve]:
    """The losses by increasing value; None with fewer than two values above 0."""
    known = [(_float(value), each) for value, each in losses.items()]
    points = sorted((value, each) for value, each in known if value is not None and value > 0)
    if len(points) < 2:
        return None
    x, each = zip(*points)
    return Curve(x, list(map(mean, each)), list(map(min, each)), list(map(max, each)))


def _float(value: str) -> Optional[float]:
    try:
        return float(value)
    except ValueError:
        return None
