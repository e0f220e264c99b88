"""What was compared, and which runs are missing."""

import shlex
from typing import Any, Dict, List

from fairseq_posenc.study.flags import DATA, words_of
from fairseq_posenc.study.report.design import design
from fairseq_posenc.study.report.document import Details, Listing, Prose, Section, Table
from fairseq_posenc.study.report.evidence import Evidence
from fairseq_posenc.study.report.words import names, number, plural

ABSENT = "Failed and missing runs"
_SOFTWARE = ("python", "torch", "fairseq", "fairseq_posenc")  # of the environment of a run


def flag_texts(flags: Dict[str, Any]) -> List[str]:
    """Each flag with its value, as on a command line.

    >>> flag_texts({"--arch": "a b", "--norm-first": True, "--layers": 1, "--heads": False})
    ["--arch 'a b'", '--norm-first', '--layers 1', 'without --heads']

    Args:
        flags: values by flag; True for a flag without a value, False for one of the base that is
            dropped. ``data`` is the folder of a system with other data than the others.
    """
    return [_flag_text(flag, value) for flag, value in flags.items()]


def _flag_text(flag: str, value: Any) -> str:
    if value is False:
        return f"without {flag}"
    words = [DATA, str(value)] if flag == DATA else words_of({flag: value})
    return " ".join(map(shlex.quote, words))


def flags_by_system(evidence: Evidence) -> Dict[str, Dict[str, Any]]:
    """Flags of every system that has a run, finished or failed."""
    return {run.system: run.flags for run in reversed(evidence.study.runs)}


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


def _count(values: List[int]) -> str:
    known = sorted({value for value in values if value})
    return " to ".join(f"{value:,}" for value in dict.fromkeys(known[:1] + known[-1:])) or "–"


def systems_section(evidence: Evidence) -> Section:
    """Systems, the flags in which they differ, and their sizes."""
    study, flags = evidence.study, flags_by_system(evidence)
    different = differing(flags)
    sizes = {name: study.of(name)[0].parameters for name in evidence.systems}
    base_size = sizes.get(evidence.baseline)
    rows = []
    for name in study.systems:
        size = sizes.get(name)
        relative = f"{100 * size / base_size - 100:+.1f} %" if size and base_size else "–"
        done = f"{len(study.of(name))} of {len(study.seeds)}"
        text = "\n".join(flag_texts(different.get(name, {})))
        count = f"{size:,}" if size else "–"
        rows.append([name, text, count, relative.replace("-", "−"), done])
    runs = [run for run in study.runs if run.done]
    caption = (
        "Systems and the flags in which they differ; parameters, and relative to the baseline, "
        f"{evidence.baseline}. Each trained for {_count([run.updates for run in runs])} updates "
        f"on {_count([run.tokens for run in runs])} tokens."
    )
    header = ["system", "flags", "parameters", "relative", "runs"]
    about = str(study.plan.get("about") or "").strip()
    parts: List[Any] = [Prose(" ".join(about.split()))] if about else []
    setting = design(study)
    parts += [Prose(setting)] if setting else []
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
    return Section("What was compared", [*parts, *_search(evidence)])


def _search(evidence: Evidence) -> List[Table]:
    """The validation loss of each value that was tried, with the one chosen."""
    tried: Dict[str, Dict[str, float]] = evidence.study.plan.get("tried") or {}
    values = list(dict.fromkeys(value for losses in tried.values() for value in losses))
    if not values:
        return []
    rows = []
    for name, losses in tried.items():
        best = min(losses, key=lambda value: losses[value], default="")
        rows.append([name, *(number(losses.get(value)) for value in values), best])
    caption = (
        "Search before the runs: validation loss of every value with the first seed; the same "
        "values for every system."
    )
    chosen = len(values) + 1
    return [Table(caption, ["system", *values, "chosen"], rows, text=(chosen,), code=(chosen,))]


def absent_section(evidence: Evidence) -> Section:
    """Failed runs with the end of their logs, and runs without a result."""
    parts: List[Any] = []
    for run in evidence.failed:
        parts.append(
            Details(
                f"{run.system}, seed {run.seed}: failed",
                [Listing(run.error or "no message")],
            )
        )
    if evidence.missing:
        listed = [f"{system}, seed {seed}" for system, seed in evidence.missing]
        parts.append(Prose(f"Not run yet: {'; '.join(listed)}."))
    return Section(ABSENT, parts)


def warnings(evidence: Evidence) -> List[str]:
    """What a reader must know before the results, in a sentence or two."""
    failed, missing = len(evidence.failed), len(evidence.missing)
    said = [f"{plural(failed, 'run')} failed"] if failed else []
    if missing:
        said.append(f"{plural(missing, 'run')} {'is' if missing == 1 else 'are'} missing")
    told = [f"{names(said)}: see “{ABSENT}”."] if said else []
    for measure, keys in evidence.diverged.items():
        listed = "; ".join(f"{system}, seed {seed}" for system, seed in keys)
        told.append(
            f"No finite {evidence.study.measures[measure].label}: {listed}. The comparison is made "
            "without, which is to the advantage of systems whose training diverges."
        )
    for name in _SOFTWARE:
        environments = [run.environment for run in evidence.study.runs if run.done]
        versions = dict.fromkeys(str(one[name]) for one in environments if name in one)
        if len(versions) > 1:
            told.append(
                f"Runs were made with different versions of {name}, {names(list(versions))}, which "
                "may have a part in the differences between them: see “To repeat it”."
            )
    return told
