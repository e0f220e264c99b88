"""Translations: quality by the length of the sentence, and samples side by side."""

from difflib import SequenceMatcher
from functools import partial
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.study.report.curves import panels
from fairseq_posenc.study.report.document import (
    Details,
    Output,
    Piece,
    Prose,
    Sample,
    Section,
    Table,
)
from fairseq_posenc.study.report.evidence import Evidence, read_lines
from fairseq_posenc.study.report.figures import small_multiples
from fairseq_posenc.study.report.units import find_units, unit_of, units
from fairseq_posenc.study.report.words import spread
from fairseq_posenc.study.sentences import TRANSLATION_METRICS, Untestable, metric
from fairseq_posenc.study.statistics import summarise

BUCKETS = 5
#: Samples: sentences at equal distances in the test set, and those that differ the most.
TYPICAL, CONTESTED = 4, 3
#: Sentences among which the latter are looked for.
CONSIDERED = 300
#: Stands where words of the reference have no counterpart.
MISSING = "‸"


class Translations(NamedTuple):
    """The test set, and the hypotheses of all runs that have translated it.

    Args:
        sources: sentences; empty if the study has not kept them.
        references: one for each sentence.
        hypotheses: by system, then by seed.
    """

    sources: List[str]
    references: List[str]
    hypotheses: Dict[str, Dict[int, List[str]]]


def read_translations(evidence: Evidence) -> Optional[Translations]:
    """Read the hypotheses; None if there are none.

    Runs whose references differ from those of the first are left out.
    """
    found: Optional[Translations] = None
    for name in evidence.systems:
        for run in evidence.study.of(name):
            lines, references = read_lines(run, "hypotheses"), read_lines(run, "references")
            if not lines or len(lines) != len(references):
                continue
            if found is None:
                sources = read_lines(run, "sources")
                kept = sources if len(sources) == len(references) else []
                found = Translations(kept, references, {})
            if references == found.references:
                found.hypotheses.setdefault(name, {})[run.seed] = lines
    return found


def buckets(sources: Sequence[str], count: int = BUCKETS) -> List[Tuple[str, int, List[int]]]:
    """Divide sentences by their length into parts of about equal size.

    Args:
        sources: sentences.
        count: of parts, fewer if many sentences have the same length.

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


def length_section(evidence: Evidence, translations: Optional[Translations]) -> Section:
    """The first measure of translations by the length of the source, in words or characters."""
    title = "Quality by sentence length"
    measures = [m for m in evidence.measures if m.name in TRANSLATION_METRICS][:1]
    if translations is None or not translations.sources or not measures:
        return Section(title, [])
    parts: List[Any] = []
    divided, unit = buckets(translations.sources), unit_of(translations.sources)
    if len(divided) < 2:  # all sentences are equally long
        return Section(title, [])
    for measure in measures:
        signatures = (run.signatures.get(measure.name, "") for run in evidence.study.runs)
        signature = next(filter(None, signatures), "")
        try:
            scores = _scores(evidence, translations, divided, measure.name, signature)
        except Untestable as error:
            return Section(title, [Prose(f"Not computed: {error}.")])
        rows = []
        for name, runs in scores.items():
            columns = zip(*(run.values() for run in runs))
            rows.append([name, *(spread(summarise(list(column))) for column in columns)])
        header = ["system", *(f"{length} {unit}" for length, _, _ in divided)]
        sizes = ", ".join(str(len(chosen)) for _, _, chosen in divided)
        table = Table(
            f"{measure.label} by the number of {unit} of the source, mean ± standard deviation "
            f"over the seeds; {sizes} sentences.",
            header,
            rows,
        )
        caption = (
            f"{measure.label} by the number of {unit} of the source: mean and range over the seeds "
            f"(blue line and band), the baseline {evidence.baseline} (dashed) and all others (thin "
            "lines). Values far from all others may lie beyond the edge."
        )
        labels = (f"{unit} in the source (median of the part)", measure.label)
        figure = small_multiples(
            f"length-{measure.name}", caption, panels(scores), evidence.baseline, labels
        )
        parts += [figure, Details(f"{measure.label} by length, as a table", [table])]
    return Section(title, parts)


def _scores(
    evidence: Evidence,
    translations: Translations,
    divided: Sequence[Tuple[str, int, List[int]]],
    name: str,
    signature: str,
) -> Dict[str, List[Dict[int, float]]]:
    """By system, for each seed: scores by the median length of the part."""
    found: Dict[str, List[Dict[int, float]]] = {
        system: [{} for _ in runs] for system, runs in translations.hypotheses.items()
    }
    for _, median, chosen in divided:
        references = [translations.references[i] for i in chosen]
        scorer = metric(name, signature, references)
        for system, runs in translations.hypotheses.items():
            for scores, lines in zip(found[system], runs.values()):
                hypotheses = [lines[i] for i in chosen]
                inputs = (name, signature, references, hypotheses)
                scores[median] = evidence.memory.get(inputs, partial(_score, scorer, hypotheses))
    return found


def _score(scorer: Any, hypotheses: List[str]) -> float:
    return float(scorer.corpus_score(hypotheses, None).score)


def mark(output: str, reference: str) -> List[Piece]:
    """Mark the words of an output that differ from the reference, and the places of missing ones.

    Where a script has no spaces, characters stand for words.

    >>> pieces = mark("a big dog", "a dog runs")
    >>> "".join(f"[{piece.text}]" if piece.marked else piece.text for piece in pieces)
    'a [big] dog [‸] '

    Args:
        output: a translation.
        reference: what it is compared with.

    Returns:
        the parts of the output, with its spaces.
    """
    found = find_units(output)
    matcher = SequenceMatcher(
        None, units(reference), [word.group() for word in found], autojunk=False
    )
    pieces: List[Piece] = []
    place = 0
    for kind, _, _, start, end in matcher.get_opcodes():
        if start == end:
            pieces += [Piece(" "), Piece(MISSING, True), Piece(" ")]
            continue
        begin, stop = found[start].start(), found[end - 1].end()
        pieces += [Piece(output[place:begin]), Piece(output[begin:stop], kind != "equal")]
        place = stop
    return [piece for piece in pieces if piece.text]


def samples_section(evidence: Evidence, translations: Optional[Translations]) -> Section:
    """Some sentences with the outputs of all systems."""
    title = "Samples"
    if translations is None or not translations.references:
        return Section(title, [])
    seed = next(s for s in evidence.study.seeds if any(s in r for r in _runs(translations)))
    outputs = {name: runs[seed] for name, runs in translations.hypotheses.items() if seed in runs}
    number = len(translations.references)
    step = _distance(number)
    among = f", of one sentence in {step}," if step > 1 else ""
    unit = unit_of(translations.references)
    parts: List[Any] = [
        Prose(
            f"Outputs with seed {seed}; marked are {unit} that differ from the reference, and "
            f"{MISSING} where {unit} are missing. First sentences at equal distances in the test "
            f"set, then{among} those whose chrF differs the most between systems with this seed."
        )
    ]
    typical = sorted({round((i + 0.5) * number / TYPICAL - 0.5) for i in range(TYPICAL)})
    contested = [i for i in _contested(translations, outputs) if i not in typical][:CONTESTED]
    for index in (*typical, *contested):
        reference = translations.references[index]
        given = [("reference", reference)]
        if translations.sources:
            given.insert(0, ("source", translations.sources[index]))
        same: Dict[str, List[str]] = {}
        for name, lines in outputs.items():
            same.setdefault(lines[index], []).append(name)
        shown = [Output(names, mark(text, reference)) for text, names in same.items()]
        parts.append(Sample(f"Sentence {index + 1}", given, shown))
    return Section(title, parts)


def _runs(translations: Translations) -> List[Dict[int, List[str]]]:
    return list(translations.hypotheses.values())


def _distance(number: int) -> int:
    """Between the sentences among which the contested ones are looked for."""
    return max(1, number // CONSIDERED)


def _contested(translations: Translations, outputs: Dict[str, List[str]]) -> List[int]:
    """Sentences by the standard deviation of chrF over the systems, the largest first."""
    if len(outputs) < 2:
        return []
    scorer = import_extra("sacrebleu", "study --report").metrics.CHRF()
    spreads = {}
    number = len(translations.references)
    for index in range(0, number, _distance(number)):
        reference = translations.references[index]
        known = {
            text: scorer.sentence_score(text, [reference]).score
            for text in {lines[index] for lines in outputs.values()}
        }
        spreads[index] = float(np.std([known[lines[index]] for lines in outputs.values()]))
    return sorted(spreads, key=lambda index: -spreads[index])
