"""``fairseq-posenc benchmark``: its arguments checked, its figures printed and written."""

import csv
import io
import json
import os
import platform
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List

import torch

from fairseq_posenc.analysis.figures import check_figure, parse_lengths
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.files import check_writable, replace_file
from fairseq_posenc.benchmark import report
from fairseq_posenc.benchmark.measure import SUBJECTS, measure
from fairseq_posenc.benchmark.options import (
    ATTENTION_JOBS,
    BEAM,
    DEFAULTS,
    DEFAULTS_WITH_LENGTHS,
    GENERATION,
    JOBS,
)
from fairseq_posenc.benchmark.report import Row
from fairseq_posenc.flags.options import option

# the dictionary has four special symbols; quartiles need two rounds
LEAST = {"layers": 1, "vocabulary": 5, "batch": 1, "threads": 1, "repeat": 2}


def complete(args: Namespace) -> None:
    """Fill in, in place, the defaults that depend on ``--lengths``.

    Raises:
        UsageError: a flag does not apply to ``--lengths``, or the lengths are not numbers.
    """
    defaults: Dict[str, Any] = DEFAULTS
    if args.lengths:
        for name in ("layers", "vocabulary", "all_encodings"):
            if option(args, name):
                raise UsageError(f"{flag_of(name)}: --lengths times a single layer; drop the flag")
        defaults = {**DEFAULTS_WITH_LENGTHS, "length": parse_lengths(args.lengths)}
    for name, value in defaults.items():
        if option(args, name) is None:
            setattr(args, name, value)


def check(args: Namespace) -> None:
    """Refuse arguments that cannot work.

    Raises:
        UsageError: naming the flag.
    """
    check_jobs(args)
    for name, least in LEAST.items():
        value = option(args, name)
        if value is not None and value < least:
            raise UsageError(f"--{name} {value}: expected {least} or more")
    check_lengths(args)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: PyTorch finds no GPU; give --device cpu")
    if args.dtype == "float16" and args.device == "cpu":
        raise UsageError("--dtype float16: needs --device cuda; on the CPU give bfloat16")
    if args.plot:
        check_figure(Path(args.plot), "--plot")
    for flag, path in (("--csv", args.csv), ("--json", args.json)):
        if path:
            check_writable(path, flag)


def check_jobs(args: Namespace) -> None:
    """Refuse jobs that do not go together, and entries that are no models for them."""
    for job in args.jobs:
        if bool(args.lengths) != (job in ATTENTION_JOBS):
            needed = "--length" if args.lengths else "--lengths, such as --lengths 512,1024,2048"
            raise UsageError(f"--jobs {job}: takes {needed}")
    kinds = {JOBS[job] for job in args.jobs}
    for entry in args.archs:
        SUBJECTS[JOBS[args.jobs[0]]].check(entry, args.jobs)
    if len(kinds) > 1 and not args.all_encodings:
        raise UsageError(
            f"--jobs {' '.join(args.jobs)}: masked-lm, lm- and translation jobs take different "
            "models; run them separately, or with --all-encodings"
        )


def check_lengths(args: Namespace) -> None:
    """Refuse lengths and positions that the jobs do not have."""
    given = " ".join(map(str, args.length))
    if min(args.length) < 1:
        raise UsageError(f"--length {given}: expected numbers above 0")
    if len(args.length) > 2 and not args.lengths and args.jobs != ["masked-lm"]:
        raise UsageError(f"--length {given}: expected one or two numbers, of source and target")
    if args.plot and not args.lengths:
        raise UsageError(f"--plot {args.plot}: plots times by length; needs --lengths")
    if args.positions:
        others = [job for job in args.jobs if job not in GENERATION]
        if others:
            raise UsageError(
                f"--positions: times tokens of {' and '.join(GENERATION)}; drop --jobs {others[0]}"
            )
        first = args.length[0] + 1 if "lm-generation" in args.jobs else 1
        if min(args.positions) < first:
            raise UsageError(f"--positions {min(args.positions)}: expected {first} or more")


def settings(args: Namespace) -> Dict[str, Any]:
    """Versions and device, on which the figures depend besides the flags."""
    device = torch.device(args.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return dict(
        {name: value for name, value in vars(args).items() if name != "run"},
        beam=BEAM,
        device_name=name,
        threads=torch.get_num_threads(),
        cores=os.cpu_count(),
        torch=torch.__version__,
        python=platform.python_version(),
    )


def as_csv(rows: List[Row]) -> str:
    """The rows as CSV, with a header line."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def run(args: Namespace) -> None:
    """Check the arguments, measure, print the tables and write the requested files.

    Args:
        args: as ``fairseq-posenc benchmark`` declares them.

    Raises:
        UsageError: an argument is wrong, or a file cannot be written.
    """
    complete(args)
    check(args)
    rows = measure(args)
    result: Dict[str, Any] = {"settings": settings(args), "rows": rows}
    if args.lengths:
        rows = result["rows"] = report.per_token(rows, args.batch)
        result["exponents"] = report.exponents(rows)
    print(json.dumps(result["settings"]))
    print(report.table(rows, report.TIMES))
    if result.get("exponents"):
        print("\n" + report.table(result["exponents"], report.EXPONENTS))
    write_files(args, rows, result)
    if args.plot:
        report.draw(rows, rows[0]["clock"], Path(args.plot))


def write_files(args: Namespace, rows: List[Row], result: Dict[str, Any]) -> None:
    """Write the rows as ``--csv``, and everything as ``--json``."""
    texts = {"--csv": as_csv(rows), "--json": json.dumps(result, indent=2) + "\n"}
    for (flag, text), path in zip(texts.items(), (args.csv, args.json)):
        if path:
            with replace_file(path, flag) as partial:
                partial.write_text(text, encoding="utf-8")
