"""The card of a model folder, in Markdown: what the model is, its data, flags, scores, limits."""

from typing import Any, List, Mapping, Optional

from fairseq_posenc.basics.errors import flag_of
from fairseq_posenc.checkpoints.reading import Checkpoint, settings_in
from fairseq_posenc.checkpoints.settings import saved_settings, settings_by_role
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.models.family import family_of
from fairseq_posenc.serving.model_folder import ModelFolder
from fairseq_posenc.version import __version__

#: Groups of fairseq's configuration that describe a training.
_TRAINING = ("criterion", "optimizer", "lr_scheduler", "optimization")
_BATCHES = ("max_tokens", "batch_size")


def card(
    name: str,
    folder: ModelFolder,
    checkpoint: Checkpoint,
    about: Optional[str],
    scores: Mapping[str, str],
    report: Any,
) -> str:
    """The card of a model.

    Args:
        name: the name of the folder.
        about: a sentence on the data, or None.
        scores: the content of files with scores, by their paths.
        report: the report of the export to CTranslate2, or None.
    """
    settings = saved_settings(checkpoint)
    arch = settings.get("arch") or settings.get("_name")
    parameters = sum({id(t): t.numel() for t in checkpoint["model"].values()}.values())
    text = folder.text
    sections = [f"# {name}", _what(folder, str(arch), parameters)]
    if about:
        sections += ["## Data", about]
    if folder.head is not None:
        sections += ["## Labels", ", ".join(folder.head.labels)]
    case = "; lower case" if text.lowercase else ""
    prepared = f"Tokeniser: {text.tokenizer}; subwords: {text.subwords}{case}."
    sections += ["## Text", prepared, *trained_with(checkpoint, str(arch))]
    if scores:
        sections += ["## Scores", *(block([content.strip()]) for content in scores.values())]
    if report is not None:
        sections += ["## Export", _export(report)]
    sections += ["## Use", block([_use(folder, name)])]
    sections.append(f"Packed by fairseq_posenc {__version__}.")
    return "\n\n".join(sections) + "\n"


def trained_with(checkpoint: Checkpoint, arch: str) -> List[str]:
    """The sections on the flags of a model and on its training."""
    flags, training = _model_flags(checkpoint, arch), _training_flags(checkpoint)
    return ["## Flags", block(flags), "## Training", _progress(checkpoint), block(training)]


def _what(folder: ModelFolder, arch: str, parameters: int) -> str:
    text = folder.text
    pair = f", {text.source_lang} to {text.target_lang}" if folder.task == "translation" else ""
    return f"A model of `--task {folder.task}`, `--arch {arch}`{pair}, {parameters:,} parameters."


def _model_flags(checkpoint: Checkpoint, arch: str) -> List[str]:
    """The settings that are part of the model and differ from the defaults."""
    family = family_of(arch)
    defaults = {} if family is None else defaults_of(family.dataclass)
    given = settings_by_role(checkpoint, ("model",))
    return [
        _flag(name, value)
        for name, value in sorted(given.items())
        if value not in (None, False, "") and value != defaults.get(name)
    ]


def _training_flags(checkpoint: Checkpoint) -> List[str]:
    if checkpoint.get("cfg") is None:  # fairseq before 0.10 does not tell groups apart
        return []
    lines = []
    for group in _TRAINING:
        settings = settings_in(checkpoint, group)
        chosen = settings.get("_name")
        lines += [_flag(group, chosen)] if chosen else []
        lines += [
            _flag(name, value)
            for name, value in settings.items()
            if isinstance(value, (int, float, str, list))
            and not name.startswith("_")
            and value not in (0, -1, False, "", "{}")
        ]
    dataset = settings_in(checkpoint, "dataset")
    lines += [_flag(name, dataset[name]) for name in _BATCHES if dataset.get(name)]
    return list(dict.fromkeys(lines))


def _progress(checkpoint: Checkpoint) -> str:
    history = checkpoint.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates")
    return "Number of updates unknown." if updates is None else f"After {updates:,} updates."


def _flag(name: str, value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return flag_of(name) if value is True else f"{flag_of(name)} {value}"


def block(lines: List[str], language: str = "") -> str:
    """A block of code."""
    return "\n".join([f"```{language}", *lines, "```"])


def _export(report: Any) -> str:
    notes = [f"- {note}" for note in report.notes]
    difference = f"- largest difference from fairseq: {report.difference:.1e}"
    return "\n".join([f"`ctranslate2/`, {report.quantization}:", "", difference, *notes])


def _use(folder: ModelFolder, name: str) -> str:
    if folder.task == "translation":
        return f"fairseq-posenc translate --model {name} <text >translations"
    if folder.head is not None:
        columns = "1" if folder.head.inputs == 1 else "1,2"
        return f"fairseq-posenc predict --model {name} --columns {columns} <table.tsv >labels.tsv"
    return f"python -c \"import fairseq_posenc; fairseq_posenc.from_pretrained('{name}')\""
