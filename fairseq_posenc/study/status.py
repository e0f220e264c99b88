"""How far a study is, and the commands it consists of."""

from pathlib import Path
from typing import List, Sequence

from fairseq_posenc.analysis.training import parse_line
from fairseq_posenc.steps.lock import holder
from fairseq_posenc.study.commands import command, shown
from fairseq_posenc.study.logs import lines_of
from fairseq_posenc.study.markers import STEPS
from fairseq_posenc.study.processes import Device
from fairseq_posenc.study.results import RUNS
from fairseq_posenc.study.runs import Spec
from fairseq_posenc.study.work import read_result


def status_of(spec: Spec, study: Path) -> str:
    """The state of a run in a few words."""
    folder = study / RUNS / spec.name
    result = read_result(folder, spec)
    if result is not None:
        last = result["error"].strip().splitlines()[-1:]
        return " ".join([result["status"], *last])
    if not folder.exists():
        return "waiting"
    done = [step.name for step in spec.steps if (folder / STEPS / f"{step.name}.json").exists()]
    fields = [parse_line(line) for line in lines_of(folder / "train.log")]
    updates = [f["num_updates"] for f in fields if "num_updates" in f]
    state = "running" if holder(folder) else "interrupted"
    where = (
        f"after {done[-1]}" if done else f"at update {updates[-1]}" if updates else "at the start"
    )
    return f"{state}, {where}"


def table(specs: Sequence[Spec], study: Path) -> List[str]:
    """A line for each run, and one with the numbers of each state."""
    states = {spec.name: status_of(spec, study) for spec in specs}
    width = max(map(len, states))
    lines = [f"{name:<{width}}  {state}" for name, state in states.items()]
    kinds = [state.split(" ")[0].rstrip(",") for state in states.values()]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return [*lines, f"{len(lines)} runs: {counts}"]


def dry_run(specs: Sequence[Spec], study: Path, device: Device) -> List[str]:
    """The commands of all runs."""
    lines = []
    for spec in specs:
        folder = study / RUNS / spec.name
        lines.append(f"# {spec.name}: {status_of(spec, study)}")
        for step in spec.steps:
            words = command(step, spec, device)
            lines.append(shown(words, study, folder) if words else f"# {step.name}")
    return lines
