"""What each encoding learned about positions, drawn from the checkpoints of the first seed."""

import tempfile
from pathlib import Path
from typing import Any, List

from fairseq_posenc.analysis import positions_figure
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.study.report.document import Details, Figure, Points, Prose, Section
from fairseq_posenc.study.report.evidence import Evidence
from fairseq_posenc.study.report.words import names
from fairseq_posenc.study.results import Run

#: Positions drawn, fewer if the model has fewer.
LENGTH = 64


def _has_checkpoint(run: Run) -> bool:
    return bool(run.checkpoint) and (run.folder / run.checkpoint).is_file()


def positions_section(evidence: Evidence) -> Section:
    """A figure for each system of which a checkpoint is there that has something to draw."""
    parts: List[Any] = []
    without: List[str] = []
    failed: List[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for index, name in enumerate(evidence.systems):
            kept = (run for run in evidence.study.of(name) if _has_checkpoint(run))
            run = next(kept, None)
            if run is None:
                continue
            checkpoint = run.folder / run.checkpoint
            output = Path(folder) / f"{index}.svg"
            try:
                positions_figure.plot(str(checkpoint), output, None, LENGTH)
            except positions_figure.NothingToDraw:
                without.append(name)
                continue
            except UsageError as error:
                reason = str(error).rpartition(f"{checkpoint}: ")[2]
                failed.append(f"{name}: {reason}")
                continue
            caption = f"{name}, seed {run.seed}: what it has learned of positions."
            svg = output.read_text(encoding="utf-8")
            figure = Figure(f"positions-{index}", caption, svg, themed=False)
            parts.append(Details(name, [figure]))
    if parts:
        told = (
            "After training: the parts of the attention logits that depend on positions alone, the "
            "decay of rotary logits with distance, and how similar the vectors of a learned table "
            "are."
        )
        if without:
            told += f" Not drawn for {names(without)}."
        parts.insert(0, Prose(told))
        if failed:
            parts.append(Points(failed))
    return Section("Positions learned", parts)
