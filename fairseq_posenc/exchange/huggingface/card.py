"""The card of an exported folder, as the Hugging Face Hub reads it: metadata, then Markdown."""

import json
import os
from pathlib import Path
from typing import Dict, Optional, Sequence

from fairseq_posenc.basics.lines import read_json_object, read_lines
from fairseq_posenc.checkpoints.reading import Checkpoint, read_checkpoint
from fairseq_posenc.checkpoints.settings import saved_settings, task_of
from fairseq_posenc.exchange.formats import Flag, Wanted
from fairseq_posenc.flags.options import option
from fairseq_posenc.serving.card import block, trained_with
from fairseq_posenc.version import __version__

CARD = "README.md"
ABOUT = Flag("about", "a sentence on the data, for the card", "TEXT")
#: The flags of an exporter that writes a card.
CARD_FLAGS = (ABOUT, Flag("scores", "texts with scores, for the card", "FILE", nargs="+"))
#: The Hub's name of a task and the class that loads a model, by the end of its architecture.
_TASKS = (
    ("ForCausalLM", "text-generation", "AutoModelForCausalLM"),
    ("LMHeadModel", "text-generation", "AutoModelForCausalLM"),
    ("ForMaskedLM", "fill-mask", "AutoModelForMaskedLM"),
    ("ForSequenceClassification", "text-classification", "AutoModelForSequenceClassification"),
    ("ForTokenClassification", "token-classification", "AutoModelForTokenClassification"),
    ("", "translation", "AutoModelForSeq2SeqLM"),
)


def scores_of(wanted: Wanted) -> Dict[str, str]:
    """The texts of ``--scores`` by their paths.

    Raises:
        UsageError: a file cannot be read.
    """
    paths = wanted.get("scores") or ()
    return {path: "\n".join(read_lines(path, f"--scores {path}")) for path in paths}


def write_card(
    folder: str, wanted: Wanted, notes: Sequence[str], difference: Optional[float]
) -> None:
    """Write the card of an exported model.

    The license is left to the user: nothing that is exported says it.

    Args:
        folder: an existing folder with the config.json of the model.
        wanted: what was asked for, with the path of the checkpoint.
        notes: what the user should know.
        difference: the largest difference from fairseq, if it was measured.

    Raises:
        UsageError: a file of scores cannot be read.
    """
    state, file = read_checkpoint(wanted.path, lazy=True), os.path.join(folder, "config.json")
    config = read_json_object(file, f"{file}:")
    architecture = config["architectures"][0]
    _, task, loads = next(row for row in _TASKS if architecture.endswith(row[0]))
    settings = saved_settings(state)
    arch = str(settings.get("arch") or settings.get("_name"))
    name = os.path.basename(os.path.abspath(wanted.out))
    sections = [
        _metadata(state, task, wanted),
        f"# {name}",
        f"`{architecture}` of transformers, trained with fairseq by `--arch {arch}`.",
    ]
    if wanted.get("about"):
        sections += ["## Data", wanted.get("about")]
    sections += trained_with(state, arch)
    if wanted.get("scores"):
        sections += ["## Scores", *(block([s.strip()]) for s in scores_of(wanted).values())]
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


def _metadata(state: Checkpoint, task: str, wanted: Wanted) -> str:
    """The lines of YAML in front, whose values are JSON, which is YAML as well."""
    saved = task_of(state)
    given = [wanted.get(name) or option(saved, name) for name in ("source_lang", "target_lang")]
    languages = [name for name in given if name and name.isalpha() and len(name) in (2, 3)]
    entries = {
        "library_name": "transformers",
        "pipeline_tag": task,
        "tags": ["fairseq", "fairseq_posenc"],
        **({"language": list(dict.fromkeys(languages))} if languages else {}),
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in entries.items()]
    return "\n".join(["---", *lines, "# license: for you to say", "---"])
