"""What repeats the study: its environment, sacreBLEU's signatures and the exact commands."""

import re
from typing import Any, Dict, List, Tuple

from fairseq_posenc.study.report.document import Details, Listing, Prose, Section, Table
from fairseq_posenc.study.report.evidence import Evidence
from fairseq_posenc.study.report.words import names
from fairseq_posenc.study.results import Run


def flatten(values: Dict[str, Any], prefix: str = "") -> Dict[str, str]:
    """Nested values by their names, joined with dots.

    >>> flatten({"python": "3.11", "torch": {"threads": 2}})
    {'python': '3.11', 'torch.threads': '2'}
    """
    found: Dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found.update(flatten(value, f"{prefix}{key}."))
        elif isinstance(value, (list, tuple)):
            found[f"{prefix}{key}"] = ", ".join(map(str, value))
        else:
            found[f"{prefix}{key}"] = str(value)
    return found


def _values(runs: List[Run], by_run: List[Dict[str, str]]) -> List[List[str]]:
    """A row for each name: its value, or each value and the runs that have it."""
    rows = []
    for key in dict.fromkeys(key for values in by_run for key in values):
        groups: Dict[str, List[str]] = {}
        for run, values in zip(runs, by_run):
            if key in values:
                groups.setdefault(values[key], []).append(f"{run.system} seed {run.seed}")
        for value, having in groups.items():
            rows.append([key, value, "all" if len(having) == len(runs) else names(having)])
    return rows


def _table(caption: str, runs: List[Run], by_run: List[Dict[str, str]]) -> List[Table]:
    rows = _values(runs, by_run)
    if not rows:
        return []
    header = ["name", "value", "runs"]
    if all(row[2] == "all" for row in rows):
        header, rows = header[:2], [row[:2] for row in rows]
    return [Table(caption, header, rows, text=(1, 2), code=(1,), wrap=(2,))]


def commands_of(runs: List[Run]) -> List[Tuple[str, str]]:
    """Titles and commands of the runs of one system; one entry if only seeds and folders differ.

    Args:
        runs: of one system.
    """
    general = []
    for run in runs:
        text = "\n".join(run.commands).replace(run.folder.name, "RUN")
        general.append(re.sub(rf"(--seed[= ]){run.seed}\b", r"\1SEED", text))
    if len(runs) > 1 and len(set(general)) == 1:
        pairs = [f"{run.seed} in {run.folder.name}" for run in runs]
        return [(f"SEED and RUN: {'; '.join(pairs)}", general[0])]
    return [(f"seed {run.seed}", "\n".join(run.commands)) for run in runs]


def reproduction_section(evidence: Evidence) -> Section:
    """Environment, signatures and commands."""
    runs = list(evidence.study.runs)
    parts: List[Any] = []
    parts += _table("Environment.", runs, [flatten(run.environment) for run in runs])
    done = [run for run in runs if run.done]
    parts += _table("Signatures of sacreBLEU.", done, [run.signatures for run in done])
    listings = []
    for name in evidence.study.systems:
        found = [run for run in runs if run.system == name and run.commands]
        if not found:
            continue
        shown: List[Any] = []
        for title, text in commands_of(found):
            shown += [Prose(title), Listing(text)]
        listings.append(Details(f"Commands of {name}", shown))
    return Section("To repeat it", [*parts, *listings])
