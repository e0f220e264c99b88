"""Time and BLEU of ``translate`` by engine, type of the weights and number of threads.

Every measurement is a whole process.  The processor time of its start, with nothing to translate,
is measured as well and taken off, which leaves preparing, searching and restoring.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.basics.tables import plain_table
from fairseq_posenc.serving.model_folder import ModelFolder


class Setting(NamedTuple):
    """An engine (fairseq or ctranslate2), the type of its weights, and a number of threads."""

    engine: str
    weights: str
    threads: int


class Times(NamedTuple):
    """Seconds of one process: elapsed, and of all its threads."""

    wall: float
    processor: float


#: Columns of the table.
COLUMNS = (
    *(("engine", "engine", ""), ("weights", "weights", ""), ("threads", "threads", "")),
    *(("start", "start", ".2f"), ("search", "search", ".2f"), ("wall", "wall", ".2f")),
    *(("BLEU", "bleu", ".2f"), ("as first", "same", "")),
)
NOTE = "start and search: processor seconds of all threads; wall: seconds of the whole process"


def settings_of(folder: ModelFolder, threads: Sequence[int], types: Sequence[str]) -> List[Setting]:
    """Everything that can be measured with a model folder, fairseq first."""
    has = [Setting("fairseq", "float32", n) for n in threads if folder.checkpoint is not None]
    if folder.export is not None:
        has += [Setting("ctranslate2", kind, n) for kind in types for n in threads]
    return has


def measure(
    folder: ModelFolder,
    source: str,
    reference: str,
    settings: Sequence[Setting],
    rounds: int,
    flags: Sequence[str] = (),
) -> Tuple[List[Dict[str, Any]], str]:
    """Measure settings in turn, *rounds* times.

    Args:
        folder: the model folder.
        rounds: number of times.
        flags: other flags of the command.

    Returns:
        for each setting its medians by the names in :data:`COLUMNS`, where ``same`` is the number
        of lines that equal those of the first setting; and the signature of the BLEU.

    Raises:
        UsageError: a file cannot be read, or a process fails.
    """
    sentences, expected = list(read_lines(source)), list(read_lines(reference))
    metric = import_extra("sacrebleu", "benchmark --translate").metrics.BLEU()
    if len(sentences) != len(expected):
        raise UsageError(
            f"{reference}: has {len(expected)} lines, and {source} has {len(sentences)}; give the "
            "reference of the same sentences"
        )
    text = "".join(f"{line}\n" for line in sentences).encode()
    starts: Dict[Setting, List[Times]] = {setting: [] for setting in settings}
    totals: Dict[Setting, List[Times]] = {setting: [] for setting in settings}
    outputs: Dict[Setting, List[str]] = {}
    for _ in range(rounds):
        for setting in settings:
            starts[setting].append(_run(folder, setting, b"", flags)[0])
            taken, written = _run(folder, setting, text, flags)
            totals[setting].append(taken)
            outputs[setting] = written.decode("utf-8").split("\n")[:-1]
    rows, first = [], outputs[settings[0]]
    for setting, out in outputs.items():
        start, total = _median(starts[setting]), _median(totals[setting])
        row = {
            **setting._asdict(),
            "start": start.processor,
            "search": total.processor - start.processor,
            "wall": total.wall,
            "bleu": metric.corpus_score(out, [expected]).score,
            "same": sum(a == b for a, b in zip(first, out)),
        }
        rows.append(row)
    return rows, str(metric.get_signature())


def _run(
    folder: ModelFolder, setting: Setting, text: bytes, others: Sequence[str]
) -> Tuple[Times, bytes]:
    flags = [*others, "--engine", setting.engine, "--threads", str(setting.threads)]
    if setting.engine == "ctranslate2":
        flags += ["--compute-type", setting.weights]
    command = [sys.executable, "-m", "fairseq_posenc", "translate", "--model", folder.path, *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": str(setting.threads)}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, input=text, capture_output=True, env=environment)
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise UsageError(f"translate {' '.join(flags)}: {last}")
    processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Times(wall, processor), done.stdout


def _median(times: Sequence[Times]) -> Times:
    return Times(*(statistics.median(column) for column in zip(*times)))


def run(
    folder: ModelFolder,
    source: str,
    reference: str,
    threads: List[int],
    rounds: int,
    flags: Sequence[str] = (),
) -> None:
    """Measure a model folder with fairseq, and exported in float32 and int8; print the table."""
    chosen = settings_of(folder, threads, ("float32", "int8"))
    rows, signature = measure(folder, source, reference, chosen, rounds, flags)
    print(plain_table(rows, COLUMNS), NOTE, signature, sep="\n")
