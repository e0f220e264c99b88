"""Translation: train, average, translate the test set, score the text."""

import re
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.study.flags import Flags, merge, words_of
from fairseq_posenc.study.logs import lines_of
from fairseq_posenc.study.plan import Plan
from fairseq_posenc.study.recipes.base import (
    RUN,
    Recipe,
    Step,
    averaging,
    checkpoint,
    fairseq,
    measures_of_parts,
    need_files,
    parts_scored,
    training,
    usual_measures,
    validation,
)
from fairseq_posenc.study.results import Measure
from fairseq_posenc.text.preparation import Preparation, Text

_OF_TEXT = ("bleu", "chrf", "ter")  # measures for which the text is translated
_USUAL = "test"  # what is scored, unless the plan says
_MADE_BY = "examples/translation/prepare.sh"
#: The search with which the test set is translated, unless the plan says.
DECODE = {"--beam": 4, "--lenpen": 0.6, "--max-tokens": 4000}
_SETTINGS = {  # a key of the plan's data: its name in text.settings
    "source_lang": "SOURCE",
    "target_lang": "TARGET",
    "tokenizer": "TOKENIZER",
    "subwords": "SUBWORDS",
}


class Texts(NamedTuple):
    """The text of a data folder."""

    preparation: Text  # how it was prepared, with the subwords of the target
    references: str  # raw reference translations of the scored subset
    sources: str  # the raw sources, if there is such a file

    @property
    def pair(self) -> Tuple[str, str]:
        """The source and the target language."""
        return str(self.preparation.source_lang), str(self.preparation.target_lang)


def noted_settings(folder: Path) -> Dict[str, str]:
    """The settings that prepare.sh left in a data folder; none if there are none."""
    lines = [line.partition("=") for line in lines_of(folder / "text.settings")]
    return {name: value for name, _, value in lines}


def texts_of(plan: Plan, subset: str) -> Texts:
    """The text of a *subset*: settings of the plan, otherwise those that prepare.sh left there.

    Raises:
        UsageError: one is missing.
    """
    folder = Path(plan.data["folder"])
    noted = noted_settings(folder)
    if not folder.is_dir():  # commands are only shown
        noted = {name: name for name in ("SOURCE", "TARGET")}
        noted.update(TOKENIZER="none", SUBWORDS="none")
    found: Dict[str, Any] = {
        key: plan.data.get(key) or noted.get(name, "") for key, name in _SETTINGS.items()
    }
    for key, value in found.items():
        if not value:
            raise UsageError(
                f"data: {folder}: has no text.settings; make it with {_MADE_BY}, or give {key}"
            )
    subword_file = plan.data.get("subword_file")
    name = noted.get("TARGET_SUBWORD_FILE") or noted.get("SUBWORD_FILE")
    if subword_file is None and name:
        subword_file = str(folder / name)
    beside = folder / f"reference.{subset}"
    first = subset == next(iter(parts_scored(plan, _USUAL)))
    given = plan.data if first else {}  # the plan names the files of one set
    return Texts(
        Text(**found, subword_file=subword_file),
        given.get("references", f"{beside}.{found['target_lang']}"),
        given.get("sources", f"{beside}.{found['source_lang']}"),
    )


def steps(plan: Plan, flags: Flags, seed: int) -> List[Step]:
    """The steps of a run."""
    parts = parts_scored(plan, _USUAL)
    source, target = texts_of(plan, next(iter(parts))).pair
    wanted = not plan.measures or any(name.partition("_")[0] in _OF_TEXT for name in plan.measures)
    task = ["--task", "translation", "--source-lang", source, "--target-lang", target]
    return [
        training(plan, task, flags, seed),
        *averaging(plan),
        validation(plan, task, {"--max-tokens": 4000}),
        *(step for part in parts.items() if wanted for step in _scoring(plan, task, *part)),
    ]


def _scoring(plan: Plan, task: List[str], subset: str, suffix: str) -> List[Step]:
    """The steps that translate and score a *subset*."""
    texts = texts_of(plan, subset)
    decode = [
        *fairseq("fairseq-generate", plan, *task),
        *("--path", f"{RUN}/{checkpoint(plan)}", "--gen-subset", subset),
        # fairseq main and its fork drop up to 7 sentences with another multiple
        *("--required-batch-size-multiple", "1", "--num-workers", "0", "--results-path", RUN),
        *words_of(merge(dict(DECODE), plan.decode)),
    ]
    text = texts.preparation
    return [
        Step(f"decode{suffix}", tuple(decode), inputs=(checkpoint(plan),), stage="decode"),
        Step(
            f"score{suffix}",
            collect=partial(score, texts=texts, subset=subset, suffix=suffix),
            inputs=(f"generate-{subset}.txt",),
            depends=tuple(filter(None, (texts.references, texts.sources, text.subword_file))),
            settings=(text.tokenizer, text.subwords),
        ),
    ]


def read_hypotheses(path: Path) -> List[List[str]]:
    """The tokens of the best hypothesis of every sentence, in the order of the source.

    Raises:
        UsageError: there is none for some sentence.
    """
    best: Dict[int, List[str]] = {}
    for line in lines_of(path):
        match = re.match(r"H-(\d+)\t\S+\t?(.*)", line)
        if match:
            best.setdefault(int(match.group(1)), match.group(2).split())
    missing = [number for number in range(max(best, default=0) + 1) if number not in best]
    if missing:
        raise UsageError(f"{path}: no hypothesis for sentence {missing[0]}")
    return [best[number] for number in range(len(best))]


def score(folder: Path, texts: Texts, subset: str, suffix: str = "") -> Dict[str, Any]:
    """Write the translations as plain text and score them with sacreBLEU.

    Args:
        folder: the run's folder, with the output of fairseq-generate.
        subset: the part of the data that was translated.
        suffix: follows the names of scores and files.

    Raises:
        UsageError: hypotheses and references differ in number, or a package is missing.
    """
    metrics = import_extra("sacrebleu.metrics", "a study of translation")
    restore = Preparation(texts.preparation).restore
    hypotheses = [*map(restore, read_hypotheses(folder / f"generate-{subset}.txt"))]
    references = lines_of(Path(texts.references))
    if len(references) != len(hypotheses):
        raise UsageError(
            f"{texts.references}: {len(references)} lines, and {len(hypotheses)} translations; "
            "give the raw text of the same subset"
        )
    written = {"hypotheses": hypotheses, "references": references}
    sources = lines_of(Path(texts.sources))
    if len(sources) == len(hypotheses):
        written["sources"] = sources
    for name, lines in written.items():
        with replace_file(folder / f"{name}{suffix}.txt") as partial_file:
            partial_file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    target = texts.pair[1]
    asian = target in ("zh", "ja")
    scorers = {
        "bleu": metrics.BLEU(trg_lang=target),
        "chrf": metrics.CHRF(),
        "ter": metrics.TER(normalized=asian, asian_support=asian),
    }
    scores: Dict[str, float] = {}
    signatures: Dict[str, str] = {}
    for name, scorer in scorers.items():
        value = scorer.corpus_score(hypotheses, [references]).score
        scores[f"{name}{suffix}"] = round(value, 4)
        signatures[f"{name}{suffix}"] = str(scorer.get_signature())
    files = {f"{name}{suffix}": f"{name}{suffix}.txt" for name in written}
    return {"scores": scores, "signatures": signatures, "files": files}


def measures(plan: Plan) -> Dict[str, Measure]:
    """BLEU, chrF, TER and the losses."""
    own = (
        Measure("bleu", "higher", "BLEU"),
        Measure("chrf", "higher", "chrF2"),
        Measure("ter", "lower", "TER"),
    )
    return usual_measures(*measures_of_parts(plan, _USUAL, own).values())


def check(plan: Plan) -> None:
    """Check that data, references and sacreBLEU are there."""
    import_extra("sacrebleu.metrics", "a study of translation")
    need_files(plan, [], _MADE_BY)
    texts = [texts_of(plan, subset) for subset in parts_scored(plan, _USUAL)]
    pair = texts[0].pair
    names = [f"dict.{lang}.txt" for lang in pair]
    for split in ("train", "valid", *parts_scored(plan, _USUAL)):
        names += [f"{split}.{'-'.join(pair)}.{lang}.idx" for lang in pair]
    need_files(plan, names, _MADE_BY)
    for path in (texts[0].preparation.subword_file, *(text.references for text in texts)):
        if path and not Path(path).is_file():
            raise UsageError(f"data: {path}: no such file; {_MADE_BY} makes it, or give its path")


RECIPE = Recipe(steps, "validate", measures, check, ("decode", "subset"))
