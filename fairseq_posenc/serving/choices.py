"""Contrastive test sets in ContraPro's format, and their accuracy by forced decoding.

Müller et al. 2018, arXiv 1810.02268: a model chooses rightly if it gives the translation of a
sentence a higher probability than each variant in which one word is wrong.  The sentences before
are given with their reference translations.
"""

import math
import os
import sys
from argparse import Namespace
from collections import Counter
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import FairseqDataset, LanguagePairDataset
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_of, read_lines, read_pairs
from fairseq_posenc.basics.records import field
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.serving.inputs import (
    BATCH,
    batches_by_tokens,
    load,
    numbers_of,
    refuse_too_long,
    tokens_of,
)
from fairseq_posenc.serving.model_folder import ModelFolder
from fairseq_posenc.serving.preparation import Preparation
from fairseq_posenc.serving.translate import Tokens
from fairseq_posenc.text.documents import Context, Pair, with_context

#: Distances of the antecedent above this count as one, as in ContraPro.
FAR = 3


class Scores(NamedTuple):
    """Log-probabilities of the tokens of a text.

    Args:
        tokens: the symbols that are predicted.
        log_probabilities: natural logarithms, of each symbol given what the model sees of the text.
    """

    tokens: List[str]
    log_probabilities: List[float]

    @property
    def total(self) -> float:
        """Log-probability of the text."""
        return math.fsum(self.log_probabilities)

    @property
    def perplexity(self) -> float:
        """Perplexity by token; 1 of an empty text."""
        return math.exp(-self.total / max(len(self.tokens), 1))


@torch.no_grad()
def scores_of(loaded: Loaded, dataset: FairseqDataset, lengths: Sequence[int]) -> List[Scores]:
    """The scores of a data set's targets, in its order.

    Args:
        dataset: a data set of fairseq, with targets.
        lengths: largest number of tokens in each of its items.
    """
    dictionary = loaded.task.target_dictionary
    scorer = loaded.task.build_generator([loaded.model], Namespace(score_reference=True))
    found: List[Scores] = [Scores([], [])] * len(lengths)
    for batch in batches_by_tokens(lengths, BATCH):
        sample = loaded.move(dataset.collater([dataset[number] for number in batch]))
        outputs: List[Any] = scorer.generate([loaded.model], sample)
        for number, (scored,) in zip(sample["id"].tolist(), outputs):
            values: Tensor = scored["positional_scores"]
            found[number] = Scores(tokens_of(dictionary, scored["tokens"]), values.tolist())
    return found


class TranslationModel:
    """A translation model of a model folder that scores translations."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        self.preparation = Preparation(folder.text, folder.path)
        self._loaded = load(folder, device)
        self.longest = dict(zip(("source", "target"), self._loaded.model.max_positions()))

    def score_tokens(self, sources: Sequence[Tokens], targets: Sequence[Tokens]) -> List[Scores]:
        """The log-probabilities of translations, in tokens, as many of each."""
        task = self._loaded.task
        sides = (
            [numbers_of(task.source_dictionary, tokens, True) for tokens in sources],
            [numbers_of(task.target_dictionary, tokens, True) for tokens in targets],
        )
        for side, longest in zip(sides, self.longest.values()):
            refuse_too_long(side, longest, "score")
        sizes = [np.array([len(text) for text in side]) for side in sides]
        dataset = LanguagePairDataset(
            sides[0],
            sizes[0],
            task.source_dictionary,
            sides[1],
            sizes[1],
            task.target_dictionary,
            left_pad_source=task.cfg.left_pad_source,
            left_pad_target=task.cfg.left_pad_target,
            shuffle=False,
        )
        return scores_of(self._loaded, dataset, np.maximum(*sizes).tolist())


class Choice(NamedTuple):
    """A sentence with its translation and wrong variants of that."""

    kind: str  # the source word and its translation, such as it:sie
    distance: int  # how many sentences before this one the deciding word stands
    before: List[Tuple[str, str]]  # the sentences before it in the document, and their translations
    source: str
    targets: List[str]  # the right one first


def read_choices(path: str, documents: str, source: str, target: str) -> List[Choice]:
    """Read a set of choices.

    Args:
        path: JSON, a list of objects with the entries of ContraPro's contrapro.json.
        documents: the folder with the documents, a file for each language, at any depth.
        source: ending of the names of the files in the source language.
        target: the same of the target language; ``document id`` is the name of such a file.

    Raises:
        UsageError: the file is no such list, or a document is missing or too short.
    """
    given = f"--choices {path}"
    entries = json_of("\n".join(read_lines(path, given)), given)
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{given}: is no list of choices; give one like contrapro.json")
    files = _files_in(documents)
    texts: Dict[str, List[Tuple[str, str]]] = {}
    found: List[Choice] = []
    incomplete = 0
    for number, entry in enumerate(entries, 1):
        where = f"{given}: entry {number}"
        name, *words = (
            field(entry, each, str, where) for each in ("document id", "src pronoun", "ref pronoun")
        )
        line, distance = (
            field(entry, each, int, where) for each in ("segment id", "ante distance")
        )
        errors, place = field(entry, "errors", list, where), line - 1
        variants = [e.get("contrastive") if isinstance(e, dict) else None for e in errors]
        if name not in texts:
            texts[name] = _document(name, files, documents, source, target, where)
        lines = texts[name]
        if not 0 <= place < len(lines) or not lines[place][0].strip():
            raise UsageError(f"{where}: {name} has no sentence in line {line}")
        wrong = [text for text in variants if isinstance(text, str) and text.strip()]
        incomplete += len(wrong) < len(variants) or not wrong
        if wrong:
            one, two = lines[place]
            kind = ":".join(words).lower()
            found.append(Choice(kind, distance, _before(lines, place), one, [two, *wrong]))
    if incomplete:
        print(f"{path}: {incomplete} of {len(entries)} choices lack variants", file=sys.stderr)
    if not found:
        raise UsageError(f"{given}: no choice has a variant; there is nothing to score")
    return found


def _files_in(folder: str) -> Dict[str, str]:
    if not os.path.isdir(folder):
        raise UsageError(f"--documents {folder}: there is no such folder")
    found = ((name, os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)
    return dict(sorted(found))


def _document(
    name: str, files: Dict[str, str], folder: str, source: str, target: str, where: str
) -> List[Tuple[str, str]]:
    """The pairs of lines of a document, by the name of its file in the target language."""
    other = name[: len(name) - len(target)] + source
    for wanted in (name, other):
        if wanted not in files:
            raise UsageError(f"{where}: --documents {folder} has no file {wanted}")
    return list(read_pairs(files[other], files[name]))


def _before(lines: Sequence[Tuple[str, str]], place: int) -> List[Tuple[str, str]]:
    """The lines before a place, back to the last blank one."""
    start = place
    while start and lines[start - 1][0].strip():
        start -= 1
    return list(lines[start:place])


def score_choices(
    model: TranslationModel, choices: Sequence[Choice], context: Context
) -> Tuple[List[List[float]], int]:
    """The log-probabilities of the targets of each choice, and how many sentences did not fit.

    Args:
        context: what the model is given with a sentence.

    Raises:
        UsageError: a sentence is longer than the model accepts.
    """
    text, longest = model.preparation, [size - 1 for size in model.longest.values()]
    sources, targets, dropped = [], [], 0
    for choice in choices:
        before = [Pair(text.source(one), text.target(two)) for one, two in choice.before]
        variants = list(map(text.target, choice.targets))
        pair = Pair(text.source(choice.source), max(variants, key=len))
        sample = with_context(before, pair, context, longest)
        dropped += sample.dropped
        prefix = sample.target[: len(sample.target) - len(pair.target)]
        sources += [sample.source] * len(variants)
        targets += [prefix + variant for variant in variants]
    totals = iter([scored.total for scored in model.score_tokens(sources, targets)])
    return [[next(totals) for _ in choice.targets] for choice in choices], dropped


def is_right(scores: Sequence[float]) -> bool:
    """True if the first is above all others; equal probabilities are no decision.

    >>> is_right([-1.0, -2.0]), is_right([-1.0, -1.0])
    (True, False)
    """
    return scores[0] > max(scores[1:])


def accuracies(choices: Sequence[Choice], right: Iterable[bool]) -> Dict[str, Dict[str, Any]]:
    """The parts of choices that are right, in percent, with their numbers, by group.

    Returns:
        for ``all``, each word of the source, each kind and each distance.
    """
    counts: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    for choice, hit in zip(choices, right):
        far = str(choice.distance) if choice.distance <= FAR else f">{FAR}"
        word = choice.kind.partition(":")[0]
        for group in ("all", word, choice.kind, f"distance {far}"):
            counts[group] += 1
            hits[group] += hit
    order = sorted(counts, key=lambda group: (group != "all", group.startswith("distance"), group))
    return {
        group: {"accuracy": 100 * hits[group] / counts[group], "choices": counts[group]}
        for group in order
    }
