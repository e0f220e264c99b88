"""``fairseq-posenc benchmark``: its arguments checked, its figures printed and written."""

import csv
import json
import os
import platform
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import torch

from fairseq_posenc.analysis.figures import (
    check_figure,
    curve_style,
    import_pyplot,
    length_axes,
    parse_lengths,
    save_figure,
)
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.files import check_writable
from fairseq_posenc.basics.lines import json_text, write_text
from fairseq_posenc.basics.tables import Column, plain_table
from fairseq_posenc.benchmark.measure import SUBJECTS, Row, measure
from fairseq_posenc.benchmark.options import (
    ATTENTION_JOBS,
    BEAM,
    DEFAULTS,
    DEFAULTS_WITH_LENGTHS,
    GENERATION,
    JOBS,
    PACKED,
)
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.settings import check_option

# the dictionary has four special symbols; quartiles need two rounds
LEAST = {"layers": 1, "vocabulary": 5, "batch": 1, "threads": 1, "repeat": 2, "documents": 1}

Curve = Tuple[List[int], List[float]]
TIMES: Sequence[Column] = (
    *(("job", "job", ""), ("tokens", "tokens", ""), ("clock", "clock", ""), ("model", "model", "")),
    *(("ms", "median_ms", ".1f"), ("ratio", "ratio", ".3f")),
    *(("quartiles", "ratio_q1", ".3f"), ("", "ratio_q3", ".3f")),
    *(("µs/token", "token_us", ".2f"), ("MiB", "peak_mib", ".0f")),
    *(("GFLOP", "gflop", ".4g"), ("ratio", "gflop_ratio", ".3f")),
)
EXPONENTS: Sequence[Column] = (
    *(("job", "job", ""), ("clock", "clock", ""), ("model", "model", "")),
    *(("exponent", "exponent", ".3f"), ("from", "shortest", ""), ("to", "longest", "")),
)
TITLES = {"attention": "bidirectional", "causal-attention": "causal"}  # titles of panels, by job


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
        check_option(args, name, {"at_least": least})
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
    if args.documents:
        others = [job for job in args.jobs if job not in PACKED]
        if others:
            raise UsageError(
                f"--documents {args.documents}: divides the texts of {' and '.join(PACKED)}; drop "
                f"--jobs {others[0]}"
            )
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


def run(args: Namespace) -> None:
    """Check the arguments, measure, print the tables and write the requested files.

    Raises:
        UsageError: an argument is wrong, or a file cannot be written.
    """
    complete(args)
    check(args)
    rows = measure(args)
    result: Dict[str, Any] = {"settings": settings(args), "rows": rows}
    if args.lengths:
        rows = result["rows"] = per_token(rows, args.batch)
        result["exponents"] = exponents(rows)
    print(json.dumps(result["settings"]))
    print(plain_table(rows, TIMES))
    if result.get("exponents"):
        print("\n" + plain_table(result["exponents"], EXPONENTS))
    write_files(args, rows, result)
    if args.plot:
        draw(rows, rows[0]["clock"], Path(args.plot))


def write_files(args: Namespace, rows: List[Row], result: Dict[str, Any]) -> None:
    """Write the rows as ``--csv``, and everything as ``--json``."""
    if args.csv:
        with write_text(args.csv, "--csv") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if args.json:
        with write_text(args.json, "--json") as stream:
            stream.write(json_text(result))


def per_token(rows: List[Row], batch: int) -> List[Row]:
    """The rows with microseconds per token added, for batches of *batch* sentences."""
    return [
        dict(row, token_us=1e3 * row["median_ms"] / (batch * int(row["tokens"]))) for row in rows
    ]


def curves(rows: List[Row], value: str) -> Dict[Tuple[str, str, str], Curve]:
    """Lengths and the figure called *value* at each, by job, clock and model."""
    found: Dict[Tuple[str, str, str], Curve] = {}
    for row in rows:
        lengths, values = found.setdefault((row["job"], row["clock"], row["model"]), ([], []))
        lengths.append(int(row["tokens"]))
        values.append(row[value])
    return found


def exponents(rows: List[Row]) -> List[Row]:
    """Fit time = constant · length^exponent by least squares in logarithms.

    Returns:
        one row per job, clock and model; none if there is only one length.
    """
    fitted = []
    for (job, clock, model), (lengths, times) in curves(rows, "median_ms").items():
        if len(set(lengths)) > 1:  # an entry may be given twice
            exponent = float(np.polyfit(np.log(lengths), np.log(times), deg=1)[0])
            span = {"shortest": min(lengths), "longest": max(lengths)}
            fitted.append(dict(job=job, clock=clock, model=model, exponent=exponent, **span))
    return fitted


def draw(rows: List[Row], clock: str, output: Path) -> None:
    """Plot time per token, and memory if measured, against length, with one panel per job.

    Args:
        rows: as :func:`per_token` returns them.
        clock: the clock whose times are drawn.
        output: the figure.
    """
    pyplot = import_pyplot("--plot")
    shown = [row for row in rows if row["clock"] == clock]
    jobs = list(dict.fromkeys(row["job"] for row in shown))
    models = list(dict.fromkeys(row["model"] for row in shown))
    values = {"token_us": f"µs per token, forward + backward ({clock})"}
    if shown[0]["peak_mib"] is not None:
        values["peak_mib"] = "peak memory (MiB)"
    size: Dict[str, Any] = {"figsize": (5 * len(jobs), 3.8 * len(values)), "squeeze": False}
    figure, panels = pyplot.subplots(
        len(values), len(jobs), sharex=True, sharey="row", constrained_layout=True, **size
    )
    for line, (value, label) in zip(panels, values.items()):
        found = curves(shown, value)
        line[0].set_ylabel(label)
        for axes, job in zip(line, jobs):
            for number, model in enumerate(models):
                axes.plot(*found[job, clock, model], **curve_style(number), label=model)
            length_axes(axes, found[job, clock, models[0]][0], (1, 2, 5))
    for axes, job in zip(panels[0], jobs):
        axes.set_title(TITLES[job])
    for axes in panels[-1]:
        axes.set_xlabel("length (tokens)")
    panels[0][0].legend()
    save_figure(figure, output, flag="--plot")
