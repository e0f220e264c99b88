"""``fairseq-posenc study``."""

import argparse
import signal
from pathlib import Path
from typing import Any, List, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import argument, at_least, command, load_plug_in, number


def _shown(parser: argparse.ArgumentParser) -> None:
    """Declare what is done instead of carrying out the plan."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="check the plan, print the commands")
    what.add_argument("--status", action="store_true", help="print how far the runs are")
    what.add_argument("--report", action="store_true", help="only write the report")


@command(
    "study",
    "compare systems over several seeds by a plan, and report",
    argument("plan", metavar="PLAN.yaml"),
    argument("--output", metavar="DIR", help="folder of the study (runs/NAME)"),
    _shown,
    number("--jobs", "runs at a time (one for each GPU, or core)"),
    argument(
        "--devices", metavar="cpu|0,1,...", help="GPUs to use, or cpu (all GPUs there are, or cpu)"
    ),
    argument(
        "--slurm",
        metavar="KEY=VALUE,...",
        help="run on a cluster, as one array with these settings of submitit, --jobs at a time",
    ),
    argument(
        "--override-base",
        metavar="FLAGS",
        default="",
        help='flags to add to the base or to change there, such as "--fp16"',
    ),
)
def study(args: argparse.Namespace) -> Optional[int]:
    """Compare systems: train, average, decode and score each with several seeds, and report.

        fairseq-posenc study examples/study/multi30k.yaml --dry-run
        fairseq-posenc study examples/study/multi30k.yaml
        fairseq-posenc study examples/study/multi30k.yaml --status

    PLAN.yaml names a recipe, the data, flags of fairseq-train that all systems share, the systems
    with theirs, and seeds; docs/study.md describes it. Everything is done by fairseq's own
    commands, which --dry-run prints.

    Stopped and started again, a study goes on where it was. What is finished is not repeated,
    whatever else changes in the plan: a run is identified by a digest of all that decides its
    result. A step that fails is tried once more; then its run is reported with the last lines of
    its log, and the others go on. Started again, the study tries it again.
    """
    from fairseq_posenc.study.plan import load_plan

    plan = load_plan(args.plan, args.override_base)
    at_least(args, jobs=1)
    study = Path(args.output or Path("runs", plan.name))
    load_plug_in(plan.user_dir or None)
    if args.report:
        from fairseq_posenc.study.results import PLAN

        if not (study / PLAN).is_file():
            raise UsageError(
                f"--report: {study}: {args.plan} has no results there yet; run the study first, or "
                "give its folder with --output"
            )
        _report(study)
        return None
    from fairseq_posenc.study import study as studies
    from fairseq_posenc.study.checks import check_plan, needs_gpu
    from fairseq_posenc.study.commands import devices_of, dry_run, table
    from fairseq_posenc.study.recipes import RECIPES
    from fairseq_posenc.study.runs import specs, trials

    shows = args.dry_run or args.status  # here, what may run elsewhere
    names = [] if args.slurm else _devices(args.devices, shows)
    tried = plan.search_seeds * sum(map(len, plan.search.values()))
    count = len(plan.systems) * max(len(plan.seeds), tried)
    devices = devices_of(names, plan.gpus, args.jobs or 0, count)
    if args.slurm or (shows and not names and not args.devices and needs_gpu(plan)):
        devices = [devices[0]._replace(gpus=("0",) * plan.gpus)]
    if not shows:
        RECIPES[plan.recipe].prepare(plan)
    absent = check_plan(plan, devices[0], without_data=shows)
    if plan.match and not absent:
        from fairseq_posenc.study.checks import match_parameters

        plan = match_parameters(plan)
    runs = [spec for tried in trials(plan).values() for _, each in tried for spec in each]
    runs = runs or specs(plan, {})
    until = RECIPES[plan.recipe].until if plan.search else ""
    if args.dry_run:
        print("\n".join([*absent, *dry_run(runs, study, devices[0], until)]))
        return None
    if args.status:
        shown = _all_runs(plan, study, runs)
        if absent:
            absent.append("# a run is recognised by its data: without data, none is shown as done")
        print("\n".join([*absent, *table(shown, study, until if shown is runs else "")]))
        return None
    before = _content(args.plan)
    make: Any = studies.local_pool(study, devices, studies.log_line)
    alone = make._replace(devices=devices[:1])
    if args.slurm:
        from fairseq_posenc.study.slurm import cluster

        make = alone = cluster(study, args.slurm, args.jobs, plan.gpus)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        results = studies.carry_out(plan, study, make, studies.log_line, alone)
    except KeyboardInterrupt:
        raise UsageError("interrupted; the same command goes on where it was") from None
    if _content(args.plan) != before:
        print(f"{args.plan}: was changed meanwhile; run the command again for the changes")
    status = _summary(results, study)
    try:
        _report(study)
    except UsageError as error:  # a package of the extra is missing; the runs are there
        print(f"no report: {error.message}")
    return status


def _content(path: str) -> bytes:
    """The content of a file; nothing once it has been moved away."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _all_runs(plan: Any, study: Path, runs: List[Any]) -> List[Any]:
    """The runs of a study whose search is over, or else those of the search."""
    from fairseq_posenc.study.results import PLAN, read_plan
    from fairseq_posenc.study.runs import specs

    if not plan.search or not (study / PLAN).exists():
        return runs
    found = read_plan(study)
    if (found.get("search"), found.get("search_seeds", 1)) != (plan.search, plan.search_seeds):
        return runs  # the search has changed since
    return specs(plan, found.get("chosen", {}))


def _devices(given: Optional[str], shows: bool) -> List[str]:
    import os

    import torch

    if given == "cpu":
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = [str(number) for number in range(torch.cuda.device_count())]
    if visible and torch.cuda.is_available():
        there = visible.split(",")
    if not given:
        return there
    names = given.split(",")
    if not shows and not there:
        raise UsageError(f"--devices {given}: no GPU found; give --devices cpu")
    for name in () if shows else names:
        if name.isdecimal() and name not in there:
            known = ", ".join(there)
            raise UsageError(f"--devices {given}: there is no GPU {name}; give some of {known}")
    return names


def _summary(results: List[Any], study: Path) -> int:
    failed = [result for result in results if result["status"] != "done"]
    for result in failed:
        print(f"{result['system']}, seed {result['seed']}: failed\n{result['error']}")
    print(f"{study}: {len(results) - len(failed)} of {len(results)} runs are done")
    return 1 if failed else 0


def _report(study: Path) -> None:
    from fairseq_posenc.study.report import write_report

    html, markdown = write_report(study)
    print(f"report: {html}, {markdown}")


COMMANDS = (study,)
