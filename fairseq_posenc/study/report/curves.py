"""Curves over updates, context and sentence length, and what encodings learned of positions."""

import re
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_posenc.analysis import positions_figure
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.study.report.document import (
    Details,
    Figure,
    Points,
    Prose,
    Section,
    Table,
    capitalised,
    names,
    table_of_means,
)
from fairseq_posenc.study.report.figures import Curve, curve, small_multiples
from fairseq_posenc.study.results import Run, Study
from fairseq_posenc.study.sentences import TRANSLATION_METRICS, Untestable, metric

#: Positions drawn, fewer if the model has fewer.
LENGTH = 64
#: Parts of a test set by the length of its sentences.
BUCKETS = 5
#: Scripts whose sentences have no spaces: Thai, Lao, Tibetan, Burmese, Khmer, Chinese and Japanese,
#: with their punctuation.
_SPACELESS = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
_SPACELESS += "\U00020000-\U0003ffff"
Runs = List[Dict[int, float]]  # for each seed: values by position
_UNIT = re.compile(rf"[{_SPACELESS}]|[^\s{_SPACELESS}]+")


def panels(series: Mapping[str, Runs]) -> Dict[str, Curve]:
    """Curves of the systems that have one.

    Args:
        series: by system, for each seed: values by position.
    """
    found = {name: curve([run for run in runs if run]) for name, runs in series.items()}
    return {name: line for name, line in found.items() if line is not None}


def table_by_length(caption: str, series: Mapping[str, Runs], unit: str = "") -> Table:
    """Means over the seeds, with a column for each length that a run has.

    Args:
        series: by system, for each seed: values by length.
    """
    lengths = sorted({length for runs in series.values() for run in runs for length in run})
    values = {
        name: [[run[length] for run in runs if length in run] for length in lengths]
        for name, runs in series.items()
    }
    return table_of_means(caption, [f"{length:,}{unit}" for length in lengths], values)


def learning_section(study: Study) -> Section:
    """The loss of each system during training."""
    for field, subset in (("valid_loss", "validation"), ("train_loss", "training")):
        series = {
            name: [
                {int(p["update"]): p[field] for p in run.curve if field in p}
                for run in study.of(name)
            ]
            for name in study.finished
        }
        lines = panels(series)
        if lines:
            label = f"{subset} loss (bits per token)"
            figure = small_multiples(
                "learning",
                capitalised(label),
                lines,
                study.baseline,
                ("updates", label),
                settled=0.25,
                note="Values of the first quarter may lie above the edge.",
            )
            return Section("Learning curves", [figure])
    return Section("Learning curves", [])


def extrapolation_section(study: Study) -> Section:
    """Perplexity of contexts of several lengths."""
    series = {
        name: [run.extrapolation for run in study.of(name) if run.extrapolation]
        for name in study.finished
    }
    series = {name: runs for name, runs in series.items() if runs}
    if not series:
        return Section("Extrapolation", [])
    parts: List[Any] = []
    lines = panels(series)
    if lines:
        parts.append(
            small_multiples(
                "extrapolation",
                "Perplexity by the length of the context",
                lines,
                study.baseline,
                ("length of the context (tokens)", "perplexity"),
                ("log", "log"),
                note="Both axes are logarithmic, and perplexities far above all others are beyond "
                "the edge.",
            )
        )
    caption = "Perplexity by the length of the context, mean ± standard deviation over the seeds."
    return Section("Extrapolation", [*parts, table_by_length(caption, series, " tokens")])


def _has_checkpoint(run: Run) -> bool:
    return bool(run.checkpoint) and (run.folder / run.checkpoint).is_file()


def positions_section(study: Study) -> Section:
    """A figure for each system that still has a checkpoint with something to draw."""
    parts: List[Any] = []
    without: List[str] = []
    failed: List[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for index, name in enumerate(study.finished):
            kept = (run for run in study.of(name) if _has_checkpoint(run))
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
    if parts or failed:
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


def units(sentence: str) -> List[str]:
    """Words, and the characters of a script that is written without spaces.

    >>> units("我爱 fairseq。")
    ['我', '爱', 'fairseq', '。']
    """
    return _UNIT.findall(sentence)


def unit_of(sentences: Sequence[str]) -> str:
    """The unit of length that suits most of the text: ``words`` or ``characters``."""
    spaceless = sum(len(re.findall(f"[{_SPACELESS}]", sentence)) for sentence in sentences)
    every = sum(len(units(sentence)) for sentence in sentences)
    return "characters" if spaceless > every / 2 else "words"


class Translations(NamedTuple):
    """The test set, and the hypotheses of all runs that have translated the test set."""

    sources: List[str]  # sentences; empty if the study has not kept them
    references: List[str]  # one for each sentence
    hypotheses: Dict[str, Dict[int, List[str]]]  # by system, then by seed


def read_translations(study: Study) -> Optional[Translations]:
    """Read the hypotheses; None if there are none.

    Runs whose references differ from those of the first are left out.
    """
    found: Optional[Translations] = None
    for name in study.finished:
        for run in study.of(name):
            lines, references = run.lines("hypotheses"), run.lines("references")
            if not lines or len(lines) != len(references):
                continue
            if found is None:
                sources = run.lines("sources")
                kept = sources if len(sources) == len(references) else []
                found = Translations(kept, references, {})
            if references == found.references:
                found.hypotheses.setdefault(name, {})[run.seed] = lines
    return found


def buckets(sources: Sequence[str], count: int = BUCKETS) -> List[Tuple[str, int, List[int]]]:
    """Divide sentences by their length into parts of about equal size.

    Args:
        sources: sentences.
        count: number of parts; there are fewer if many sentences have the same length.

    Returns:
        for each part its name, the median length, and the indices of its sentences.
    """
    lengths = np.array([len(units(source)) for source in sources])
    edges = np.unique(np.percentile(lengths, np.linspace(0, 100, count + 1)[1:-1], method="lower"))
    parts = np.searchsorted(edges, lengths, side="left")
    found = []
    for part in np.unique(parts):
        chosen = np.flatnonzero(parts == part)
        low, high = lengths[chosen].min(), lengths[chosen].max()
        name = f"{low}" if low == high else f"{low}–{high}"
        found.append((name, int(np.median(lengths[chosen])), chosen.tolist()))
    return found


def length_section(study: Study) -> Section:
    """The first measure of translations by the length of the source, in words or characters."""
    title = "Quality by sentence length"
    measure = next((m for m in study.scored if m.name in TRANSLATION_METRICS), None)
    translations = read_translations(study)
    if measure is None or translations is None or not translations.sources:
        return Section(title, [])
    divided, unit = buckets(translations.sources), unit_of(translations.sources)
    if len(divided) < 2:  # all sentences are equally long
        return Section(title, [])
    signatures = (run.signatures.get(measure.name, "") for run in study.runs)
    signature = next(filter(None, signatures), "")
    try:
        scores = _scores(translations, divided, measure.name, signature)
    except Untestable as error:
        return Section(title, [Prose(f"Not computed: {error}.")])
    sizes = ", ".join(str(len(chosen)) for _, _, chosen in divided)
    table = table_of_means(
        f"{measure.label} by the number of {unit} of the source, mean ± standard deviation "
        f"over the seeds; {sizes} sentences.",
        [f"{length} {unit}" for length, _, _ in divided],
        {
            name: [list(column) for column in zip(*(run.values() for run in runs))]
            for name, runs in scores.items()
        },
    )
    figure = small_multiples(
        f"length-{measure.name}",
        f"{measure.label} by the number of {unit} of the source",
        panels(scores),
        study.baseline,
        (f"{unit} in the source (median of the part)", measure.label),
        note="Values far from all others may lie beyond the edge.",
    )
    shown = Details(f"{measure.label} by length, as a table", [table])
    return Section(title, [figure, shown])


def _scores(
    translations: Translations,
    divided: Sequence[Tuple[str, int, List[int]]],
    name: str,
    signature: str,
) -> Dict[str, List[Dict[int, float]]]:
    """Each system's scores, a dictionary for each seed: scores by the median length of the part."""
    found: Dict[str, List[Dict[int, float]]] = {
        system: [{} for _ in runs] for system, runs in translations.hypotheses.items()
    }
    for _, median, chosen in divided:
        references = [translations.references[i] for i in chosen]
        scorer = metric(name, signature, references)
        for system, runs in translations.hypotheses.items():
            for scores, lines in zip(found[system], runs.values()):
                hypotheses = [lines[i] for i in chosen]
                scores[median] = float(scorer.corpus_score(hypotheses, None).score)
    return found
