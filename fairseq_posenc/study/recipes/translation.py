"""Translation: train, average, translate the test set, score the text."""

import re
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.study.flags import Flags, merge, words_of
from fairseq_posenc.study.logs import lines_of
from fairseq_posenc.study.plan import Plan
from fairseq_posenc.study.recipes.base import (
    PLUG_IN,
    RUN,
    Recipe,
    Step,
    averaging,
    checkpoint,
    need_files,
    training,
    usual_measures,
    validation,
)
from fairseq_posenc.study.results import Measure
from fairseq_posenc.text.subwords import KINDS
from fairseq_posenc.text.words import joiner_of

_MADE_BY = "examples/translation/prepare.sh"
_DECODE = {"--beam": 4, "--lenpen": 0.6, "--max-tokens": 4000}
_SETTINGS = {  # a key of the plan's data: its name in text.settings
    "source_lang": "SOURCE",
    "target_lang": "TARGET",
    "tokenizer": "TOKENIZER",
    "subwords": "SUBWORDS",
    "subword_file": "SUBWORD_FILE",
}


class Text(NamedTuple):
    """How the text of a data folder was prepared, and where its raw form is.

    Args:
        source: source language.
        target: target language.
        tokenizer: ``moses`` or ``none``.
        subwords: a key of :data:`KINDS`.
        subword_file: what splits the target's words, or nothing.
        references: raw reference translations of the scored subset.
        sources: its raw sources, or nothing.
    """

    source: str
    target: str
    tokenizer: str
    subwords: str
    subword_file: str
    references: str
    sources: str


def text_of(plan: Plan) -> Text:
    """The settings in the plan, otherwise those that prepare.sh left in the folder.

    Raises:
        UsageError: one is missing.
    """
    folder = Path(plan.data["folder"])
    lines = [line.partition("=") for line in lines_of(folder / "text.settings")]
    noted = {name: value for name, _, value in lines}
    target_file = noted.get("TARGET_SUBWORD_FILE")
    if target_file:
        noted["SUBWORD_FILE"] = target_file
    found = {key: plan.data.get(key) or noted.get(name, "") for key, name in _SETTINGS.items()}
    for key in ("source_lang", "target_lang", "tokenizer", "subwords"):
        if not found[key]:
            raise UsageError(
                f"data: {folder}: has no text.settings; make it with {_MADE_BY}, or give {key}"
            )
    subword_file = found["subword_file"]
    if subword_file and "subword_file" not in plan.data:
        subword_file = str(folder / subword_file)
    beside = folder / f"reference.{_subset(plan)}"
    return Text(
        found["source_lang"],
        found["target_lang"],
        found["tokenizer"],
        found["subwords"],
        subword_file,
        plan.data.get("references", f"{beside}.{found['target_lang']}"),
        plan.data.get("sources", f"{beside}.{found['source_lang']}"),
    )


def _subset(plan: Plan) -> str:
    return plan.subset or "test"


def steps(plan: Plan, flags: Flags, seed: int) -> List[Step]:
    """The steps of a run."""
    text, subset = text_of(plan), _subset(plan)
    task = ["--task", "translation", "--source-lang", text.source, "--target-lang", text.target]
    decode = [
        *("fairseq-generate", plan.data["folder"], "--user-dir", plan.user_dir or PLUG_IN, *task),
        *("--path", f"{RUN}/{checkpoint(plan)}", "--gen-subset", subset),
        # fairseq main and its fork drop up to 7 sentences with another multiple
        *("--required-batch-size-multiple", "1", "--num-workers", "0", "--results-path", RUN),
        *words_of(merge(dict(_DECODE), plan.decode)),
    ]
    scored = partial(score, text=text, subset=subset)
    return [
        training(plan, task, flags, seed),
        *averaging(plan),
        validation(plan, task, {"--max-tokens": 4000}),
        Step("decode", tuple(decode), inputs=(checkpoint(plan),)),
        Step(
            "score",
            collect=scored,
            inputs=(f"generate-{subset}.txt",),
            depends=tuple(filter(None, (text.references, text.sources, text.subword_file))),
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


def score(folder: Path, text: Text, subset: str) -> Dict[str, Any]:
    """Write the translations as plain text and score them with sacreBLEU.

    Args:
        folder: the run's folder, with the output of fairseq-generate.
        text: how to restore plain text.
        subset: the part of the data that was translated.

    Raises:
        UsageError: hypotheses and references differ in number, or a package is missing.
    """
    metrics = import_extra("sacrebleu.metrics", "a study of translation")
    tokens = read_hypotheses(folder / f"generate-{subset}.txt")
    join, restore = (
        KINDS[text.subwords](text.subword_file).join,
        joiner_of(text.tokenizer, text.target),
    )
    hypotheses = [" ".join(restore(join(words).split()).split()) for words in tokens]
    references = lines_of(Path(text.references))
    if len(references) != len(hypotheses):
        raise UsageError(
            f"{text.references}: {len(references)} lines, and {len(hypotheses)} translations; give "
            "the raw text of the same subset"
        )
    written = {"hypotheses": hypotheses, "references": references}
    sources = lines_of(Path(text.sources))
    if len(sources) == len(hypotheses):
        written["sources"] = sources
    for name, lines in written.items():
        with replace_file(folder / f"{name}.txt") as partial_file:
            partial_file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    asian = text.target in ("zh", "ja")
    scorers = {
        "bleu": metrics.BLEU(trg_lang=text.target),
        "chrf": metrics.CHRF(),
        "ter": metrics.TER(normalized=asian, asian_support=asian),
    }
    scores: Dict[str, float] = {}
    signatures: Dict[str, str] = {}
    for name, scorer in scorers.items():
        scores[name] = round(scorer.corpus_score(hypotheses, [references]).score, 4)
        signatures[name] = str(scorer.get_signature())
    files = {name: f"{name}.txt" for name in written}
    return {"scores": scores, "signatures": signatures, "files": files}


def measures(plan: Plan) -> Dict[str, Measure]:
    """BLEU, chrF, TER and the losses."""
    return usual_measures(
        plan,
        Measure("bleu", "higher", "BLEU"),
        Measure("chrf", "higher", "chrF2"),
        Measure("ter", "lower", "TER"),
    )


def check(plan: Plan) -> None:
    """Check that data, references and sacreBLEU are there."""
    import_extra("sacrebleu.metrics", "a study of translation")
    need_files(plan, [], _MADE_BY)
    text = text_of(plan)
    pair = f"{text.source}-{text.target}"
    names = [f"dict.{lang}.txt" for lang in (text.source, text.target)]
    for split in ("train", "valid", _subset(plan)):
        names += [f"{split}.{pair}.{lang}.idx" for lang in (text.source, text.target)]
    need_files(plan, names, _MADE_BY)
    for path in (text.references, text.subword_file):
        if path and not Path(path).is_file():
            raise UsageError(f"data: {path}: no such file; {_MADE_BY} makes it, or give its path")


RECIPE = Recipe("translation", steps, "validate", measures, check, ("decode", "subset"))
