"""Compare the translations of several systems with sacreBLEU's paired tests.

    python compare.py BASELINE SYSTEM [SYSTEM ...]

Each is a folder that evaluate.sh wrote, with hypotheses.txt, reference.txt and scores.json. For
BLEU, chrF and TER, every system is compared with the first by paired bootstrap resampling (Koehn
2004) and by approximate randomisation (Riezler and Maxwell 2005), both with a fixed seed. The first
also gives the 95 % confidence interval of each score.
"""

import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from score import text_metrics

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines, write_text
from fairseq_posenc.basics.tables import markdown_table
from fairseq_posenc.flags.usage import documented_parser

TESTS = {"bs": "paired bootstrap", "ar": "approximate randomisation"}


class System(NamedTuple):
    """A system: its name, its translations, the reference, and signatures by score."""

    name: str
    hypotheses: List[str]
    reference: List[str]
    signatures: Dict[str, str]


class Entry(NamedTuple):
    """A score of a system: half of its 95 % interval, and p-values by test (None: baseline)."""

    score: float
    interval: float
    p: Dict[str, Optional[float]]


def read_system(folder: str, name: str) -> System:
    """Read what evaluate.sh wrote to *folder*."""
    files = {}
    for file in ("hypotheses.txt", "reference.txt", "scores.json"):
        files[file] = os.path.join(folder, file)
        if not os.path.isfile(files[file]):
            raise UsageError(f"{folder}: has no {file}; give folders that evaluate.sh wrote")
    try:
        scores = json.loads("\n".join(read_lines(files["scores.json"])))
        signatures = {entry["name"]: str(entry["signature"]) for entry in scores}
        found = signatures["sacreBLEU"], signatures["TER"]
    except (ValueError, TypeError, KeyError):
        raise UsageError(
            f"{files['scores.json']}: damaged, or of an older version; run evaluate.sh again"
        ) from None
    del found
    hypotheses, reference = (list(read_lines(files[f])) for f in list(files)[:2])
    if len(hypotheses) != len(reference):
        raise UsageError(f"{folder}: {len(hypotheses)} translations of {len(reference)} sentences")
    return System(name, hypotheses, reference, signatures)


def names_of(folders: Sequence[str]) -> List[str]:
    """Short names: the last parts of the paths that tell them apart."""
    parts = [os.path.normpath(folder).split(os.sep) for folder in folders]
    first = 1
    while len({tuple(p[-first:]) for p in parts}) < len(parts):
        first += 1
        if first > max(map(len, parts)):
            raise UsageError("{}: one folder twice".format(" ".join(folders)))
    kept = [p[-first:] for p in parts]
    while len(kept[0]) > 1 and len({p[-1] for p in kept}) == 1:
        kept = [p[:-1] for p in kept]  # evaluate-test
    return ["/".join(p) for p in kept]


def check(systems: Sequence[System]) -> None:
    """Refuse systems that translated different texts, or were scored in different ways."""
    one = systems[0]
    for other in systems[1:]:
        if other.reference != one.reference:
            raise UsageError(f"{one.name} and {other.name} have different references")
        for name in ("sacreBLEU", "TER"):
            if other.signatures[name] != one.signatures[name]:
                raise UsageError(
                    f"{one.name} and {other.name} were scored in different ways: "
                    f"{one.signatures[name]} and {other.signatures[name]}"
                )


def metrics_of(signatures: Dict[str, str]) -> Dict[str, Any]:
    """The metrics of plain text whose signatures are given."""
    tokenizer = re.search(r"tok:([^|]+)", signatures["sacreBLEU"])
    lang = "zh" if "asian:yes" in signatures["TER"] else ""
    return text_metrics(lang, tokenizer.group(1) if tokenizer else None)


def compare(
    systems: Sequence[System], metrics: Dict[str, Any], samples: Dict[str, int], seed: int
) -> Tuple[List[Dict[str, Entry]], Dict[str, Dict[str, str]]]:
    """Run both tests.

    Args:
        systems: the first is the baseline.
        metrics: by name.
        samples: number of samples, by test.
        seed: the seed of the random numbers.

    Returns:
        the entries of each system by metric, and the signatures by test and metric.
    """
    os.environ["SACREBLEU_SEED"] = str(seed)  # read by sacrebleu
    from sacrebleu.significance import PairedTest

    named = [(system.name, system.hypotheses) for system in systems]
    results: Dict[str, Any] = {}
    signatures: Dict[str, Dict[str, str]] = {}
    for test, count in samples.items():
        paired = PairedTest(named, metrics, [systems[0].reference], test, count)
        found, scores = paired()
        # sacreBLEU has names of its own for the metrics, in the same order
        results[test] = dict(zip(metrics, [scores[name] for name in found]))
        signatures[test] = {name: str(s) for name, s in zip(metrics, found.values())}
    entries: List[Dict[str, Entry]] = []
    for index, system in enumerate(systems):
        entries.append({})
        # for equal translations, sacreBLEU gives the smallest p there is
        same = index > 0 and system.hypotheses == systems[0].hypotheses
        for name in metrics:
            result = results["bs"][name][index]
            p = {test: 1.0 if same else results[test][name][index].p_value for test in samples}
            entries[-1][name] = Entry(float(result.score), float(result.ci), p)
    return entries, signatures


def rows_of(systems: Sequence[System], entries: Sequence[Dict[str, Entry]]) -> List[List[str]]:
    """The table, with its head."""
    rows = [["system"]]
    for name in entries[0]:
        rows[0] += [name, f"p ({TESTS['bs']})", f"p ({TESTS['ar']})"]
    for system, scores in zip(systems, entries):
        row = [system.name]
        for entry in scores.values():
            row.append(f"{entry.score:.2f} ± {entry.interval:.2f}")
            row += ["" if p is None else f"{p:.4f}" for p in entry.p.values()]
        rows.append(row)
    return rows


def as_text(rows: Sequence[Sequence[str]], metrics: Sequence[str]) -> List[str]:
    """A table for every metric, in columns."""
    lines = []
    for index in range(len(metrics)):
        part = [[row[0], *row[1 + 3 * index : 4 + 3 * index]] for row in rows]
        widths = [max(map(len, column)) for column in zip(*part)]
        lines += ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in part]
        lines.append("")
    return lines


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=12345, help="(12345, sacreBLEU's)")
    add("--samples", type=int, default=1000, metavar="N", help="of the bootstrap (1000)")
    add("--trials", type=int, default=10000, metavar="N", help="of the randomisation (10000)")
    add("--output", metavar="FOLDER", help="also write compare.txt, compare.md and compare.json")
    add("systems", nargs="+", metavar="FOLDER")
    args = parser.parse_args(argv)
    if len(args.systems) < 2:
        raise UsageError("give two folders or more; the first is the baseline")
    for flag in ("seed", "samples", "trials"):
        if getattr(args, flag) < 1:
            raise UsageError(f"--{flag} {getattr(args, flag)}: expected a whole number above 0")
    names = names_of(args.systems)
    systems = [read_system(folder, name) for folder, name in zip(args.systems, names)]
    check(systems)
    samples = {"bs": args.samples, "ar": args.trials}
    metrics = metrics_of(systems[0].signatures)
    entries, signatures = compare(systems, metrics, samples, args.seed)
    rows = rows_of(systems, entries)
    notes = [f"{TESTS[test]}: {text}" for test in samples for text in signatures[test].values()]
    print("\n".join(as_text(rows, list(metrics)) + notes))
    if args.output:
        facts = {
            "signatures": signatures,
            "systems": [
                {"name": s.name, **{name: entry._asdict() for name, entry in scores.items()}}
                for s, scores in zip(systems, entries)
            ],
        }
        outputs = {
            "compare.txt": as_text(rows, list(metrics)) + notes,
            "compare.md": [
                *markdown_table(rows[0], rows[1:]),
                "",
                *(f"- {note}" for note in notes),
            ],
            "compare.json": [json.dumps(facts, indent=2)],
        }
        for name, lines in outputs.items():
            with write_text(os.path.join(args.output, name)) as stream:
                stream.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
