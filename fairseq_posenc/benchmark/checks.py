"""Defaults and checks of the arguments of ``fairseq-posenc benchmark``."""

from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List

import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_posenc.analysis.figures import figure_format, import_pyplot
from fairseq_posenc.analysis.lengths import parse_lengths
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.files import check_writable
from fairseq_posenc.basics.versions import HAS_SDPA
from fairseq_posenc.benchmark.attention import check_entry
from fairseq_posenc.benchmark.masked_lm import EXPLICIT, split_entry
from fairseq_posenc.benchmark.options import (
    ATTENTION_JOBS,
    DEFAULTS,
    DEFAULTS_WITH_LENGTHS,
    GENERATION,
    JOBS,
)
from fairseq_posenc.benchmark.peers import PEERS
from fairseq_posenc.flags.options import option


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
    for job in args.jobs:
        if bool(args.lengths) != (job in ATTENTION_JOBS):
            needed = "--length" if args.lengths else "--lengths, such as --lengths 512,1024,2048"
            raise UsageError(f"--jobs {job}: takes {needed}")
    for entry in args.archs:
        check_entry(entry) if args.lengths else check_model(entry, args.jobs)
    kinds = {JOBS[job] for job in args.jobs}
    if len(kinds) > 1 and not args.all_encodings:
        raise UsageError(
            "--jobs {}: masked-lm, lm- and translation jobs take different models; run them "
            "separately, or with --all-encodings".format(" ".join(args.jobs))
        )
    # the dictionary has four special symbols; quartiles need two rounds
    for name, least in (
        ("layers", 1),
        ("vocabulary", 5),
        ("batch", 1),
        ("threads", 1),
        ("repeat", 2),
    ):
        value = option(args, name)
        if value is not None and value < least:
            raise UsageError(f"--{name} {value}: expected {least} or more")
    given = " ".join(map(str, args.length))
    if min(args.length) < 1:
        raise UsageError(f"--length {given}: expected numbers above 0")
    if len(args.length) > 2 and not args.lengths and args.jobs != ["masked-lm"]:
        raise UsageError(f"--length {given}: expected one or two numbers, of source and target")
    if args.positions:
        others = [job for job in args.jobs if job not in GENERATION]
        if others:
            raise UsageError(
                f"--positions: times tokens of {' and '.join(GENERATION)}; drop --jobs {others[0]}"
            )
        if args.count:
            raise UsageError("--positions: of --count every token counts; drop one of the two")
        first = args.length[0] + 1 if "lm-generation" in args.jobs else 1
        if min(args.positions) < first:
            raise UsageError(f"--positions {min(args.positions)}: expected {first} or more")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: PyTorch finds no GPU; give --device cpu")
    if args.count and (args.lengths or args.device != "cpu"):
        flag = "--lengths" if args.lengths else f"--device {args.device}"
        raise UsageError(f"--count: counts whole models, on the CPU; drop {flag}")
    if args.count and not HAS_SDPA:
        raise UsageError("--count: needs PyTorch 2.0 or later")
    if args.dtype == "float16" and args.device == "cpu" and not args.count:
        raise UsageError("--dtype float16: needs --device cuda; on the CPU give bfloat16")
    if args.plot and not args.lengths:
        raise UsageError(f"--plot {args.plot}: plots times by length; needs --lengths")
    if args.plot:
        import_pyplot(f"--plot {args.plot}")
        figure_format(Path(args.plot), "--plot")
    for flag, path in (("--csv", args.csv), ("--json", args.json), ("--plot", args.plot)):
        if path:
            check_writable(path, flag)


def check_model(entry: str, jobs: List[str]) -> None:
    """Refuse an entry of ``--archs`` that is not a model, or not one for *jobs*.

    Raises:
        UsageError: naming the entry.
    """
    explicit, _, words = split_entry(entry)
    name = words[0] if words else ""
    if name not in ARCH_MODEL_REGISTRY and name not in PEERS:
        raise UsageError(
            f"--archs {entry!r}: {name!r} is not an architecture of fairseq or of "
            "the plug-in; `fairseq-posenc list` names them"
        )
    if (explicit or name in PEERS) and jobs != ["masked-lm"]:
        only = EXPLICIT if explicit else name
        raise UsageError(f"--archs {entry!r}: {only} is only for --jobs masked-lm")
    if name in PEERS and len(words) > 1:
        raise UsageError(f"--archs {entry!r}: {name} takes no flag but --vocabulary")
