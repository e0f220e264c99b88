"""Running a benchmark and writing down its figures."""

import csv
import io
import json
import os
import platform
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List

import torch

from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.benchmark import lengths
from fairseq_posenc.benchmark.checks import check, complete
from fairseq_posenc.benchmark.counted import count_table, counted
from fairseq_posenc.benchmark.measure import measure
from fairseq_posenc.benchmark.options import BEAM


def settings(args: Namespace) -> Dict[str, Any]:
    """Versions and device, on which the figures depend besides the flags."""
    device = torch.device(args.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    given = {name: value for name, value in vars(args).items() if name != "run"}
    return dict(
        given,
        beam=BEAM,
        device_name=name,
        threads=torch.get_num_threads(),
        cores=os.cpu_count(),
        torch=torch.__version__,
        python=platform.python_version(),
    )


def table(rows: List[Dict[str, Any]]) -> str:
    """The rows as a plain-text table."""
    width = max(len(row["model"]) for row in rows)
    head = f"{'job':<14}{'tokens':<8}{'clock':<11}{'model':<{width}}"
    head += f"{'ms':>10}{'ratio':>8}  quartiles      MiB   arithmetic (ratio)"
    lines = [head]
    for row in rows:
        memory = "-" if row["peak_mib"] is None else format(row["peak_mib"], ".0f")
        gflop, ratio = row["gflop"], row["gflop_ratio"]
        counted = "-" if gflop is None else f"{gflop:.4g} GFLOP ({ratio:.3f})"
        lines.append(
            "{job:<14}{tokens:<8}{clock:<11}{model:<{width}}{median_ms:>10.1f}"
            "{ratio:>8.3f}  {ratio_q1:.3f}-{ratio_q3:.3f}{memory:>8}   {counted}".format(
                **row, width=width, memory=memory, counted=counted
            )
        )
    return "\n".join(lines)


def as_csv(rows: List[Dict[str, Any]]) -> str:
    """The rows as CSV, with a header line."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def run(args: Namespace) -> None:
    """Check the arguments, measure, print the table and write the requested files.

    Args:
        args: as ``fairseq-posenc benchmark`` declares them.

    Raises:
        UsageError: an argument is wrong, or a file cannot be written.
    """
    complete(args)
    check(args)
    rows = counted(args) if args.count else measure(args)
    conditions = settings(args)
    result: Dict[str, Any] = {"settings": conditions, "rows": rows}
    print(json.dumps(conditions))
    if args.count:
        print(count_table(rows))
    elif args.lengths:
        rows = result["rows"] = lengths.per_token(rows, args.batch)
        fitted = result["exponents"] = lengths.exponents(rows)
        print(lengths.table(rows, fitted))
    else:
        print(table(rows))
    if args.csv:
        _write(args.csv, as_csv(rows), "--csv")
    if args.json:
        _write(args.json, json.dumps(result, indent=2) + "\n", "--json")
    if args.plot:
        lengths.draw(rows, rows[0]["clock"], Path(args.plot))


def _write(path: str, text: str, flag: str) -> None:
    with replace_file(path, flag) as partial:
        partial.write_text(text, encoding="utf-8")
