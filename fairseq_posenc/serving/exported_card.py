"""The card of an exported folder, as the Hugging Face Hub reads it: metadata, then Markdown."""

import json
import os
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from fairseq_posenc.basics.lines import read_json_object, read_lines
from fairseq_posenc.checkpoints.reading import Checkpoint, read_checkpoint
from fairseq_posenc.checkpoints.settings import saved_settings, task_of
from fairseq_posenc.flags.options import option
from fairseq_posenc.serving.card import block, trained_with
from fairseq_posenc.version import __version__

CARD = "README.md"
#: The Hub's name of a task and the class that loads a model, by the end of its architecture.
_TASKS = (
    ("ForCausalLM", "text-generation", "AutoModelForCausalLM"),
    ("LMHeadModel", "text-generation", "AutoModelForCausalLM"),
    ("ForMaskedLM", "fill-mask", "AutoModelForMaskedLM"),
    ("ForSequenceClassification", "text-classification", "AutoModelForSequenceClassification"),
    ("ForTokenClassification", "token-classification", "AutoModelForTokenClassification"),
    ("", "translation", "AutoModelForSeq2SeqLM"),
)


def write_card(
    folder: str,
    name: str,
    path: str,
    options: Mapping[str, Any],
    notes: Sequence[str],
    difference: Optional[float],
) -> None:
    """Write the card of an exported model.

    The license is left to the user: nothing that is exported says it.

    Args:
        folder: an existing folder with the config.json of the model.
        name: the name that the folder will have.
        path: the checkpoint.
        options: the flags of the export: ``about``, ``scores``, and the languages, if they are
            given.
        notes: what the user should know.
        difference: the largest difference from fairseq, if it was measured.

    Raises:
        UsageError: a file of scores cannot be read.
    """
    state, file = read_checkpoint(path, lazy=True), os.path.join(folder, "config.json")
    config = read_json_object(file, f"{file}:")
    architecture = config["architectures"][0]
    _, task, loads = next(row for row in _TASKS if architecture.endswith(row[0]))
    settings = saved_settings(state)
    arch = str(settings.get("arch") or settings.get("_name"))
    sections = [
        _metadata(state, task, options),
        f"# {name}",
        f"`{architecture}` of transformers, trained with fairseq by `--arch {arch}`.",
    ]
    if options.get("about"):
        sections += ["## Data", options["about"]]
    sections += trained_with(state, arch)
    texts = ["\n".join(read_lines(s, f"--scores {s}")) for s in options.get("scores") or ()]
    if texts:
        sections += ["## Scores", *(block([text.strip()]) for text in texts)]
    remarks = [f"- {note}" for note in notes]
    if difference is not None:
        remarks.append(f"- largest difference of logits from fairseq: {difference:.1e}")
    if remarks:
        sections += ["## Export", "\n".join(remarks)]
    trusted = ", trust_remote_code=True" if "auto_map" in config else ""
    code = [
        f"from transformers import {loads}, AutoTokenizer\n",
        f'tokenizer = AutoTokenizer.from_pretrained("{name}"{trusted})',
        f'model = {loads}.from_pretrained("{name}"{trusted})',
    ]
    sections += ["## Use", block(code, "python")]
    sections.append(f"Exported by fairseq_posenc {__version__}.")
    Path(folder, CARD).write_text("\n\n".join(sections) + "\n", "utf-8")


def _metadata(state: Checkpoint, task: str, options: Mapping[str, Any]) -> str:
    """The lines of YAML in front, whose values are JSON, which is YAML as well."""
    saved = task_of(state)
    given = [options.get(name) or option(saved, name) for name in ("source_lang", "target_lang")]
    languages = [name for name in given if name and name.isalpha() and len(name) in (2, 3)]
    entries = {
        "library_name": "transformers",
        "pipeline_tag": task,
        "tags": ["fairseq", "fairseq_posenc"],
        **({"language": list(dict.fromkeys(languages))} if languages else {}),
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in entries.items()]
    return "\n".join(["---", *lines, "# license: for you to say", "---"])
