"""The quality of translations by the length of the sentence."""

import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_posenc.study.report.curves import panels
from fairseq_posenc.study.report.document import Details, Prose, Section
from fairseq_posenc.study.report.evidence import Evidence, read_lines
from fairseq_posenc.study.report.figures import small_multiples
from fairseq_posenc.study.report.words import table_of_means
from fairseq_posenc.study.sentences import TRANSLATION_METRICS, Untestable, metric

BUCKETS = 5
#: Scripts whose sentences have no spaces: Thai, Lao, Tibetan, Burmese, Khmer, Chinese and Japanese,
#: with their punctuation.
_SPACELESS = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
_SPACELESS += "\U00020000-\U0003ffff"
_UNIT = re.compile(rf"[{_SPACELESS}]|[^\s{_SPACELESS}]+")


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


def length_section(evidence: Evidence) -> Section:
    """The first measure of translations by the length of the source, in words or characters."""
    title = "Quality by sentence length"
    measure = next((m for m in evidence.measures if m.name in TRANSLATION_METRICS), None)
    translations = read_translations(evidence)
    if measure is None or translations is None or not translations.sources:
        return Section(title, [])
    divided, unit = buckets(translations.sources), unit_of(translations.sources)
    if len(divided) < 2:  # all sentences are equally long
        return Section(title, [])
    signatures = (run.signatures.get(measure.name, "") for run in evidence.study.runs)
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
    caption = (
        f"{measure.label} by the number of {unit} of the source: mean and range over the seeds "
        f"(blue line and band), the baseline {evidence.baseline} (dashed) and all others (thin "
        "lines). Values far from all others may lie beyond the edge."
    )
    labels = (f"{unit} in the source (median of the part)", measure.label)
    figure = small_multiples(
        f"length-{measure.name}", caption, panels(scores), evidence.baseline, labels
    )
    shown = Details(f"{measure.label} by length, as a table", [table])
    return Section(title, [figure, shown])


def _scores(
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
                scores[median] = float(scorer.corpus_score(hypotheses, None).score)
    return found
