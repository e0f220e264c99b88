"""What was compared, which runs are missing, and what repeats the study."""

import re
import shlex
from typing import Any, Dict, List, Optional, Tuple

from fairseq_posenc.study.flags import flag_texts
from fairseq_posenc.study.report.document import (
    Details,
    Listing,
    Prose,
    Section,
    Table,
    names,
    plural,
)
from fairseq_posenc.study.report.search import edges, lucky_choices
from fairseq_posenc.study.results import Run, Study

ABSENT = "Failed and missing runs"
#: Keys of the plan that concern all systems.
_SETTINGS = (
    *("recipe", "data", "generated", "budget", "match", "average"),
    *("subset", "decode", "validate", "finetune"),
)
_ALIKE = 5.0  # percent by which sizes may differ without a word in the summary
_SOFTWARE = ("python", "torch", "fairseq", "fairseq_posenc")  # keys of an environment


def flags_by_system(study: Study) -> Dict[str, Dict[str, Any]]:
    """Flags of every system that has a run, finished or failed."""
    return {run.system: run.flags for run in reversed(study.runs)}


def differing(flags: Dict[str, Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """The flags without those that have the same value in all systems."""
    if len(flags) < 2:
        return flags
    first, *others = flags.values()
    shared = {
        flag
        for flag, value in first.items()
        if all(flag in other and other[flag] == value for other in others)
    }
    return {
        name: {flag: value for flag, value in found.items() if flag not in shared}
        for name, found in flags.items()
    }


def _relative_sizes(study: Study) -> Dict[str, float]:
    """The parameters of each system, less those of the baseline, in percent of the baseline's."""
    sizes = {name: study.of(name)[0].parameters for name in study.finished}
    base = sizes.get(study.baseline)
    return {name: 100 * size / base - 100 for name, size in sizes.items()} if base else {}


def _percent(value: Optional[float]) -> str:
    return "–" if value is None else f"{value:+.1f} %".replace("-", "−")


def _count(values: List[int]) -> str:
    known = sorted({value for value in values if value})
    return " to ".join(f"{value:,}" for value in dict.fromkeys(known[:1] + known[-1:])) or "–"


def _trained(study: Study) -> str:
    """The updates and tokens of a system, which has a training for each generated task."""
    runs, tasks = [run for run in study.runs if run.done], len(study.plan.get("generated") or {})
    updates, tokens = _count([run.updates for run in runs]), _count([run.tokens for run in runs])
    if tasks > 1:
        return f"for {updates} updates on each of {tasks} tasks, on {tokens} tokens in all"
    return f"for {updates} updates on {tokens} tokens"


def systems_section(study: Study) -> Section:
    """Systems, the flags in which they differ, and their sizes."""
    flags = flags_by_system(study)
    different = differing(flags)
    relative = _relative_sizes(study)
    rows = []
    for name in study.systems:
        done = f"{len(study.of(name))} of {len(study.seeds)}"
        text = "\n".join(flag_texts(different.get(name, {})))
        size = f"{study.of(name)[0].parameters:,}" if study.of(name) else "–"
        rows.append([name, text, size, _percent(relative.get(name)), done])
    caption = (
        "Systems and the flags in which they differ; parameters, and relative to the baseline, "
        f"{study.baseline}. Each trained {_trained(study)}."
    )
    header = ["system", "flags", "parameters", "relative", "runs"]
    about = str(study.plan.get("about") or "").strip()
    parts: List[Any] = [Prose(" ".join(about.split()))] if about else []
    parts += _settings(study.plan)
    parts += [
        Prose(
            f"{plural(len(study.systems), 'system')}, each with "
            f"{'seed' if len(study.seeds) == 1 else 'the seeds'} "
            f"{names([str(seed) for seed in study.seeds])}. Runs with the same seed saw their "
            "data in the same order."
        ),
        Table(caption, header, rows, text=(1,), code=(1,)),
    ]
    shared = {
        flag: value
        for flag, value in next(iter(flags.values()), {}).items()
        if all(flag not in found for found in different.values())
    }
    base = next((run.base for run in study.runs), [])
    common = " ".join(filter(None, [" ".join(map(shlex.quote, base)), *flag_texts(shared)]))
    if common:
        parts.append(Details("Flags of all systems", [Listing(common)]))
    return Section("What was compared", parts)


def _settings(plan: Dict[str, Any]) -> List[Table]:
    """What the plan says of the data, the budget and the scoring of all systems."""
    told = {key: plan[key] for key in _SETTINGS if plan.get(key)}
    rows = [list(row) for row in flatten(told).items()]
    caption = "The keys of the plan that concern all systems."
    return [Table(caption, ["key", "value"], rows, text=(1,), code=(1,))] if rows else []


def absent_section(study: Study) -> Section:
    """Failed runs with the end of their logs, and runs without a result."""
    parts: List[Any] = []
    for run in study.failed:
        parts.append(
            Details(f"{run.system}, seed {run.seed}: failed", [Listing(run.error or "no message")])
        )
    if study.missing:
        listed = [f"{system}, seed {seed}" for system, seed in study.missing]
        parts.append(Prose(f"Not run yet: {'; '.join(listed)}."))
    return Section(ABSENT, parts)


def warnings(study: Study) -> List[str]:
    """What a reader must know before the results, in a sentence or two."""
    failed, missing = len(study.failed), len(study.missing)
    said = [f"{plural(failed, 'run')} failed"] if failed else []
    if missing:
        said.append(f"{plural(missing, 'run')} {'is' if missing == 1 else 'are'} missing")
    told = [f"{names(said)}: see “{ABSENT}”."] if said else []
    for measure, keys in study.diverged.items():
        listed = "; ".join(f"{system}, seed {seed}" for system, seed in keys)
        told.append(
            f"No finite {study.measures[measure].label}: {listed}. The comparison is made "
            "without, which is to the advantage of systems whose training diverges."
        )
    relative = _relative_sizes(study)
    far = max(relative, key=lambda name: abs(relative[name]), default="")
    if far and abs(relative[far]) >= _ALIKE:
        told.append(
            f"The systems have the same budget and not the same size: {far} has "
            f"{_percent(relative[far])} of parameters against the baseline, {study.baseline}; see "
            "“What was compared”. With “match: parameters” in the plan, all have the same."
        )
    told += [*edges(study), *lucky_choices(study)]
    for name in _SOFTWARE:
        environments = [run.environment for run in study.runs if run.done]
        versions = dict.fromkeys(str(one[name]) for one in environments if name in one)
        if len(versions) > 1:
            told.append(
                f"Runs were made with different versions of {name}, {names(list(versions))}, which "
                "may have a part in the differences between them: see “To repeat it”."
            )
    return told


def flatten(values: Dict[str, Any], prefix: str = "") -> Dict[str, str]:
    """Nested values by their names, joined with dots.

    >>> flatten({"python": "3.11", "torch": {"threads": 2}})
    {'python': '3.11', 'torch.threads': '2'}
    """
    found: Dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found.update(flatten(value, f"{prefix}{key}."))
        elif isinstance(value, (list, tuple)):
            found[f"{prefix}{key}"] = ", ".join(map(str, value))
        else:
            found[f"{prefix}{key}"] = "" if value == {} else str(value)
    return found


def _values(runs: List[Run], by_run: List[Dict[str, str]]) -> List[List[str]]:
    """A row for each name and value, with the runs that have the value."""
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
    """Titles and commands of the runs of one system; one entry if only seeds and folders differ."""
    general = []
    for run in runs:
        text = "\n".join(run.commands).replace(run.folder.name, "RUN")
        general.append(re.sub(rf"(--seed[= ]){run.seed}\b", r"\1SEED", text))
    if len(runs) > 1 and len(set(general)) == 1:
        pairs = [f"{run.seed} in {run.folder.name}" for run in runs]
        return [(f"SEED and RUN: {'; '.join(pairs)}", general[0])]
    return [(f"seed {run.seed}", "\n".join(run.commands)) for run in runs]


def reproduction_section(study: Study) -> Section:
    """Environment, signatures and commands."""
    runs = list(study.runs)
    parts: List[Any] = []
    parts += _table("Environment.", runs, [flatten(run.environment) for run in runs])
    done = [run for run in runs if run.done]
    parts += _table("Signatures of sacreBLEU.", done, [run.signatures for run in done])
    listings = []
    for name in study.systems:
        found = [run for run in runs if run.system == name and run.commands]
        if not found:
            continue
        shown: List[Any] = []
        for title, text in commands_of(found):
            shown += [Prose(title), Listing(text)]
        listings.append(Details(f"Commands of {name}", shown))
    return Section("To repeat it", [*parts, *listings])
