"""Documents: train on sentences with context, translate documents, score them and choices."""

import json
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.study.flags import Flags, merge, words_of
from fairseq_posenc.study.logs import lines_of
from fairseq_posenc.study.plan import Plan
from fairseq_posenc.study.recipes import translation
from fairseq_posenc.study.recipes.base import (
    PLUG_IN,
    RUN,
    Absent,
    Recipe,
    Step,
    averaging,
    checkpoint,
    training,
    usual_measures,
    validation,
)
from fairseq_posenc.study.results import Measure
from fairseq_posenc.text.documents import units

_SUBSET = "test"
_MODEL = "model"  # the model folder of a run
_TRANSLATIONS = "hypotheses.txt"
#: Largest distance at which what decides a choice counts as near; the next group is farther.
_NEAR = ("distance 1", "distance 2", "distance 3")
_FAR = "distance >3"


def context_of(plan: Plan) -> Tuple[str, str]:
    """The last context of the samples in the data, and its sides, as prepare.sh noted them.

    Raises:
        UsageError: the data are not samples of documents.
    """
    folder = Path(plan.data["folder"])
    if not folder.is_dir():  # commands are only shown
        return "CONTEXT", "both"
    noted = translation.noted_settings(folder)
    if not noted.get("CONTEXT"):
        raise UsageError(
            f"data: {folder}: are no samples of documents; make them with "
            "examples/translation/prepare.sh --context N"
        )
    return noted["CONTEXT"].split(",")[-1], noted.get("CONTEXT_SIDES") or "both"


def steps(plan: Plan, flags: Flags, seed: int) -> List[Step]:
    """The steps of a run."""
    texts = translation.texts_of(plan, _SUBSET)
    source, target = texts.pair
    task = ["--task", "translation", "--source-lang", source, "--target-lang", target]
    count, sides = context_of(plan)
    text = texts.preparation
    subwords = ["--subword-file", text.subword_file] if text.subword_file else []
    pack = [
        *("fairseq-posenc", "pack", f"{RUN}/{checkpoint(plan)}", f"{RUN}/{_MODEL}"),
        *("--data", plan.data["folder"], "--source-lang", source, "--target-lang", target),
        *("--tokenizer", text.tokenizer, "--subwords", text.subwords, *subwords),
        *("--context", count, "--context-sides", sides, *_plug_in(plan)),
    ]
    decode = [
        *("fairseq-posenc", "translate", "--model", f"{RUN}/{_MODEL}", "--engine", "fairseq"),
        *("--documents", "--input", texts.sources, "--output", f"{RUN}/{_TRANSLATIONS}"),
        *(*words_of(merge(dict(translation.DECODE), plan.decode)), *_plug_in(plan)),
    ]
    packed = (f"{_MODEL}/model.json",)
    return [
        training(plan, task, flags, seed),
        *averaging(plan),
        validation(plan, task, {"--max-tokens": 4000}),
        Step("pack", tuple(pack), inputs=(checkpoint(plan),), fresh=_MODEL, on_device=False),
        Step("decode", tuple(decode), inputs=packed, on_device=False, depends=(texts.sources,)),
        *(_choices(plan, number) for number in ("", *_longer(plan))),
        Step(
            "score",
            collect=partial(score, texts=texts),
            inputs=(_TRANSLATIONS,),
            depends=(texts.references,),
        ),
    ]


def _plug_in(plan: Plan) -> List[str]:
    return ["--user-dir", plan.user_dir or PLUG_IN]


def _longer(plan: Plan) -> List[str]:
    """The numbers of sentences before a sentence with which choices are scored, besides."""
    return [str(number) for number in plan.extrapolation.get("lengths", ())]


def _choices(plan: Plan, number: str) -> Step:
    """The step that scores the choices with *number* sentences before each, or as trained."""
    suffix = f"_{number}" if number else ""
    name = f"choices{suffix}"
    files = (plan.data["choices"], plan.data["documents"])
    words = [
        *("fairseq-posenc", "score-choices", "--model", f"{RUN}/{_MODEL}", "--choices", files[0]),
        *("--documents", files[1], "--json", f"{RUN}/{name}.json", *_plug_in(plan)),
        *(("--context", number, "--context-sides", context_of(plan)[1]) if number else ()),
    ]
    collect = partial(chosen, name=f"{name}.json", suffix=suffix)
    inputs = (f"{_MODEL}/model.json",)
    return Step(name, tuple(words), collect, inputs=inputs, on_device=False, depends=files)


def chosen(folder: Path, name: str, suffix: str) -> Dict[str, Any]:
    """The accuracies in a file of score-choices: of all, by the word, near and far."""
    groups = json.loads((folder / name).read_text(encoding="utf-8"))["accuracies"]
    scores = {"accuracy": groups["all"]["accuracy"]}
    for group, found in groups.items():
        if ":" not in group and not group.startswith("distance") and group != "all":
            scores[f"accuracy_{group}"] = found["accuracy"]
    near = [groups[group] for group in _NEAR if group in groups]
    if near:
        right = sum(one["accuracy"] * one["choices"] for one in near)
        scores["near"] = right / sum(one["choices"] for one in near)
    if _FAR in groups:
        scores["far"] = groups[_FAR]["accuracy"]
    return {"scores": {key + suffix: round(value, 4) for key, value in scores.items()}}


def score(folder: Path, texts: translation.Texts) -> Dict[str, Any]:
    """Score translations by sentence, and by document.

    Raises:
        UsageError: translations and references differ in their numbers of lines.
    """
    metrics = import_extra("sacrebleu.metrics", "a study of documents")
    found = units(lines_of(folder / _TRANSLATIONS), lines_of(Path(texts.references)))
    bleu = metrics.BLEU(trg_lang=texts.pair[1])
    scores = {
        name: round(bleu.corpus_score(found[unit][0], [found[unit][1]]).score, 4)
        for name, unit in (("bleu", "sentences"), ("d_bleu", "documents"))
    }
    return {"scores": scores, "signatures": {"bleu": str(bleu.get_signature())}}


def measures(plan: Plan) -> Dict[str, Measure]:
    """Choices that are right, BLEU and the losses."""
    found = []
    for number in ("", *_longer(plan)):
        suffix = f"_{number}" if number else ""
        given = f", {number} sentences before" if number else ""
        for name, label in (
            ("accuracy", "right choices"),
            ("near", "right choices, decided up to 3 sentences before"),
            ("far", "right choices, decided farther before"),
        ):
            found.append(Measure(name + suffix, "higher", label + given, "%"))
    found.append(Measure("bleu", "higher", "BLEU"))
    found.append(Measure("d_bleu", "higher", "BLEU of documents"))
    return usual_measures(*found)


def check(plan: Plan) -> None:
    """Check that data, documents and choices are there."""
    for key in ("choices", "documents"):
        if key not in plan.data:
            raise UsageError(f"data: {key}: missing; see examples/study/documents.yaml")
    if plan.extrapolation and list(plan.extrapolation) != ["lengths"]:
        raise UsageError("extrapolation: expected lengths alone, numbers of sentences such as [6]")
    translation.check(plan)
    context_of(plan)
    for key in ("choices", "documents"):
        if not Path(plan.data[key]).exists():
            raise Absent(f"data: {key}: {plan.data[key]}: does not exist; see the plan's comment")


RECIPE = Recipe(steps, "validate", measures, check, ("decode", "extrapolation"))
