"""The cards of model folders and exported folders, in Markdown: data, flags, scores, limits."""

import json
import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from fairseq_posenc.basics.errors import flag_of
from fairseq_posenc.basics.lines import read_json_object, read_lines
from fairseq_posenc.checkpoints.reading import Checkpoint, read_checkpoint, settings_in
from fairseq_posenc.checkpoints.settings import (
    architecture,
    saved_settings,
    settings_by_role,
    task_of,
)
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.flags.options import option
from fairseq_posenc.models.family import family_of
from fairseq_posenc.serving.model_folder import CARD, ModelFolder
from fairseq_posenc.version import __version__

#: Groups of fairseq's configuration that describe a training run.
_TRAINING = ("criterion", "optimizer", "lr_scheduler", "optimization")
_BATCHES = ("max_tokens", "batch_size")
#: Endings of class names in transformers, each with the Hub's task name and the loading class.
_TASKS = (
    ("ForCausalLM", "text-generation", "AutoModelForCausalLM"),
    ("LMHeadModel", "text-generation", "AutoModelForCausalLM"),
    ("ForMaskedLM", "fill-mask", "AutoModelForMaskedLM"),
    ("ForSequenceClassification", "text-classification", "AutoModelForSequenceClassification"),
    ("ForTokenClassification", "token-classification", "AutoModelForTokenClassification"),
    ("", "translation", "AutoModelForSeq2SeqLM"),
)


def card(
    name: str,
    folder: ModelFolder,
    checkpoint: Checkpoint,
    parameters: int,
    about: Optional[str],
    scores: Sequence[str],
    report: Any,
) -> str:
    """The card of a model folder that is called *name*.

    *parameters* is their number, *about* is a sentence about the data, *scores* are the contents of
    files with scores, and *report* is the report of the export to CTranslate2; these three may be
    None or empty.
    """
    text = folder.text
    pair = f", {text.source_lang} to {text.target_lang}" if folder.task == "translation" else ""
    what = f"A model of `--task {folder.task}`, `--arch {_arch(checkpoint)}`{pair}"
    case = "; lower case" if text.lowercase else ""
    export: List[str] = []
    if report is not None:
        export = [f"to `ctranslate2/`, {report.quantization}", *report.notes]
        export += _measured(report.difference)
    return _written(
        [f"# {name}", f"{what}, {parameters:,} parameters."],
        {
            "Data": about,
            "Labels": ", ".join(folder.head.labels) if folder.head else None,
            "Text": f"Tokeniser: {text.tokenizer}; subwords: {text.subwords}{case}.",
            **_trained(checkpoint, scores, export),
            "Use": f"{_block([_use(folder, name)])}\n\nPacked by fairseq_posenc {__version__}.",
        },
    )


def write_card(
    folder: str,
    name: str,
    path: str,
    options: Mapping[str, Any],
    notes: Sequence[str],
    difference: Optional[float],
) -> None:
    """Write the card of an exported model; it begins with metadata for the Hugging Face Hub.

    The license is left to the user, because neither the checkpoint nor the flags state one.

    Args:
        folder: an existing folder with the config.json of the model.
        name: the name that the folder will have.
        path: the checkpoint.
        options: the flags of the export: ``about``, ``scores`` and the languages.
        notes: what users of the model should know.
        difference: the largest difference from the outputs in fairseq, or None.
    """
    checkpoint, file = read_checkpoint(path, lazy=True), os.path.join(folder, "config.json")
    config = read_json_object(file, f"{file}:")
    architecture = config["architectures"][0]
    _, task, loads = next(row for row in _TASKS if architecture.endswith(row[0]))
    trained = f"trained with fairseq by `--arch {_arch(checkpoint)}`"
    trusted = ", trust_remote_code=True" if "auto_map" in config else ""
    code = [
        f"from transformers import {loads}, AutoTokenizer\n",
        f'tokenizer = AutoTokenizer.from_pretrained("{name}"{trusted})',
        f'model = {loads}.from_pretrained("{name}"{trusted})',
    ]
    scores = ["\n".join(read_lines(s, f"--scores {s}")) for s in options.get("scores") or ()]
    start = [_metadata(checkpoint, task, options), f"# {name}"]
    text = _written(
        [*start, f"`{architecture}` of transformers, {trained}."],
        {
            "Data": options.get("about"),
            **_trained(checkpoint, scores, [*notes, *_measured(difference)]),
            "Use": f"{_block(code, 'python')}\n\nExported by fairseq_posenc {__version__}.",
        },
    )
    Path(folder, CARD).write_text(text, "utf-8")


def _written(start: Sequence[str], sections: Mapping[str, Optional[str]]) -> str:
    titled = [f"## {title}\n\n{text}" for title, text in sections.items() if text]
    return "\n\n".join([*start, *titled]) + "\n"


def _trained(checkpoint: Checkpoint, scores: Sequence[str], export: List[str]) -> Dict[str, str]:
    history = checkpoint.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates")
    progress = "Number of updates unknown." if updates is None else f"After {updates:,} updates."
    return {
        "Flags": _block(_model_flags(checkpoint)),
        "Training": f"{progress}\n\n{_block(_training_flags(checkpoint))}",
        "Scores": "\n\n".join(_block([text.strip()]) for text in scores),
        "Export": "\n".join(f"- {remark}" for remark in export),
    }


def _arch(checkpoint: Checkpoint) -> str:
    return architecture(saved_settings(checkpoint))


def _model_flags(checkpoint: Checkpoint) -> List[str]:
    family = family_of(_arch(checkpoint))
    defaults = {} if family is None else defaults_of(family.dataclass)
    given = settings_by_role(checkpoint, ("model",))
    return [
        _flag(name, value)
        for name, value in sorted(given.items())
        if value not in (None, False, "") and value != defaults.get(name)
    ]


def _training_flags(checkpoint: Checkpoint) -> List[str]:
    if checkpoint.get("cfg") is None:  # fairseq before 0.10 saved no groups of settings
        return []
    lines = []
    for group in _TRAINING:
        settings = settings_in(checkpoint, group)
        lines += [
            _flag(name, value)
            for name, value in {group: settings.get("_name"), **settings}.items()
            if isinstance(value, (int, float, str, list))
            and not name.startswith("_")
            and value not in (0, -1, False, "", "{}")
        ]
    dataset = settings_in(checkpoint, "dataset")
    lines += [_flag(name, dataset[name]) for name in _BATCHES if dataset.get(name)]
    return list(dict.fromkeys(lines))


def _flag(name: str, value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return flag_of(name, value)


def _block(lines: List[str], language: str = "") -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def _measured(difference: Optional[float]) -> List[str]:
    return [] if difference is None else [f"largest difference from fairseq: {difference:.1e}"]


def _use(folder: ModelFolder, name: str) -> str:
    if folder.task == "translation":
        return f"fairseq-posenc translate --model {name} <text >translations"
    if folder.head is not None:
        columns = "1" if folder.head.inputs == 1 else "1,2"
        return f"fairseq-posenc predict --model {name} --columns {columns} <table.tsv >labels.tsv"
    return f"python -c \"import fairseq_posenc; fairseq_posenc.from_pretrained('{name}')\""


def _metadata(checkpoint: Checkpoint, task: str, options: Mapping[str, Any]) -> str:
    """The YAML at the start of a card; its values are written as JSON, which is valid YAML."""
    saved = task_of(checkpoint)
    given = [options.get(name) or option(saved, name) for name in ("source_lang", "target_lang")]
    languages = [name for name in given if name and name.isalpha() and len(name) in (2, 3)]
    entries = {
        "library_name": "transformers",
        "pipeline_tag": task,
        "tags": ["fairseq", "fairseq_posenc"],
        **({"language": list(dict.fromkeys(languages))} if languages else {}),
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in entries.items()]
    return "\n".join(["---", *lines, "# license: choose one, and remove the # at the start", "---"])
