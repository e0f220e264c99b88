"""Import of foreign models: each is written to a temporary folder, checked, and moved into place.

The checkpoints are like those of ``fairseq-train`` for ``posenc_masked_lm``, ``posenc_lm`` and
``posenc_transformer``, but have no optimiser state.  All fairseq commands, averaging,
``--restore-file`` and ``--finetune-from-model`` accept them.
"""

import contextlib
import os
from pathlib import Path
from typing import Dict, List

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from torch import nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.files import files_in, refuse_own_source, staging
from fairseq_posenc.checkpoints.reading import Checkpoint, write_checkpoint
from fairseq_posenc.exchange import formats, native
from fairseq_posenc.exchange.exporter import ADAPTERS, adapter_in
from fairseq_posenc.exchange.reader import size_of
from fairseq_posenc.exchange.verify import compare
from fairseq_posenc.models import kinds
from fairseq_posenc.models.segments import PAIRS


def new_checkpoint(
    settings: kinds.Settings, data: str, kind: kinds.Kind = kinds.MASKED
) -> Checkpoint:
    """A checkpoint in fairseq's format, as before the first update, without parameters.

    Args:
        settings: the settings of the model that differ from their defaults.
        data: the folder with dict.txt, the data folder of ``fairseq-train``.
    """
    flags = ["--task", kind.task, "--criterion", kind.criterion[0], "--arch", kind.arch]
    args = options.parse_args_and_arch(
        options.get_training_parser(),
        ["", *flags, *(f"{flag_of(of_task)}={settings[name]}" for of_task, name in kind.lengths)],
        modify_parser=lambda parser: parser.set_defaults(**settings),
    )
    cfg = convert_namespace_to_omegaconf(args)
    cfg.task.data = data  # set last: Hydra would parse it
    for name, language in zip(("source_lang", "target_lang"), kind.languages):
        cfg.task[name] = language
    if kind is kinds.MASKED and cfg.model.num_segments > 1:
        cfg.model.segments = PAIRS  # as such foreign models were trained
    done = {"criterion_name": kind.criterion[1], "optimizer_name": None}
    epoch = {"epoch": 1, "iterations_in_epoch": 0, "shuffle": True}
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        **{"model": {}, "criterion": None},
        "optimizer_history": [{**done, "lr_scheduler_state": {}, "num_updates": 0}],
        "task_state": {},
        "extra_state": {"metrics": {}, "previous_training_time": 0.0, "train_iterator": epoch},
        "last_optimizer_state": None,
    }


def flags_of(settings: kinds.Settings, kind: kinds.Kind = kinds.MASKED) -> str:
    """The command-line flags of a model, for training it further."""
    words = ["--arch", kind.arch]
    for name, value in kind.changed(settings).items():
        if value is False:  # no flag sets a default of True to False
            words.append(f"(with fairseq-hydra-train: model.{name}=false)")
        else:
            words.append(flag_of(name, value))
    return " ".join(words)


def build(checkpoint: Checkpoint, dictionary: str, kind: kinds.Kind = kinds.MASKED) -> nn.Module:
    """Build the model that the settings of *checkpoint* describe, with a dict.txt.

    Its random initial parameters are the same on every call.
    """
    cfg = OmegaConf.create(checkpoint["cfg"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return native.task_with(dictionary, kind).build_model(cfg.model, from_checkpoint=True)


def import_flags() -> Dict[formats.Flag, List[str]]:
    """Each flag of the importers, with the names of the formats that accept it."""
    flags = (native.VOCAB, *(flag for each in ADAPTERS for flag in each.import_flags))
    return {
        flag: [name for name, entry in formats.FORMATS.items() if entry.importer] for flag in flags
    }


def import_checkpoint(importer: formats.Importer, wanted: formats.Wanted) -> formats.Report:
    """Convert a foreign model into ``checkpoint.pt`` and ``dict.txt``.

    Args:
        wanted: the request; if the foreign model is an adapter, it is merged with its base model.

    Raises:
        UsageError: the source cannot be read or represented, *wanted.out* cannot be written, or the
            outputs of both models differ by more than 1e-4.  Then nothing is written.
    """
    source = wanted.path
    refuse_own_source(wanted.out, source if os.path.isdir(source) else os.path.dirname(source))
    adapter = adapter_in(wanted, lambda each: each.is_folder(source))
    with adapter.merged(wanted) if adapter else contextlib.nullcontext(source) as whole:
        imported = importer.read(whole, wanted.get("vocab"))
        kind, foreign = imported.kind, imported.foreign
        with staging(wanted.out) as side:
            path, dictionary = os.path.join(side, "checkpoint.pt"), os.path.join(side, "dict.txt")
            text = imported.vocabulary.text(kind.adds_mask)
            # fairseq's task looks for the dictionary of each language
            for name in ("dict.txt", *(f"dict.{language}.txt" for language in kind.languages)):
                Path(side, name).write_text(text, "utf-8")
            if imported.labels:
                labels = Path(side, "label", "dict.txt")
                labels.parent.mkdir()
                labels.write_text("".join(f"{label} 1\n" for label in imported.labels), "utf-8")
            checkpoint = new_checkpoint(imported.settings, wanted.out, kind)
            checkpoint["model"] = _complete(imported, checkpoint, dictionary)
            write_checkpoint(checkpoint, path)
            model = native.load(path, dictionary, kind)  # check that fairseq can load it
            difference = None
            if wanted.verify:
                difference = compare(model, kind, imported.head, foreign, whole)
            files = [os.path.join(wanted.out, name) for name in files_in(side)]
    flags = f"flags to pre-train the model further: {flags_of(imported.settings, kind)}"
    description = foreign.description if foreign and wanted.verify else ""
    return formats.Report(files, [*imported.notes, flags], difference, description)


def _complete(
    imported: formats.Imported, checkpoint: Checkpoint, dictionary: str
) -> kinds.Parameters:
    """All parameters of the model that *checkpoint* describes, in the model's order."""
    kind = imported.kind
    model = build(checkpoint, dictionary, kind)
    trained = {name for name, _ in model.named_parameters() if not name.startswith(kind.head)}
    parameters: kinds.Parameters = {}
    for name, value in model.state_dict().items():
        given = imported.parameters.get(name)
        if given is None and name in trained:
            raise UsageError(f"{name}: the foreign model has no counterpart of this parameter")
        if given is not None and given.shape != value.shape:
            raise UsageError(
                f"{imported.origin[name]} has size {size_of(given)}, but the settings "
                f"of the model require {size_of(value)}"
            )
        parameters[name] = value if given is None else given
    parameters.update(imported.parameters)  # with heads, which fairseq adds when it loads a model
    output = kind.head + "weight"
    if output not in imported.parameters:
        parameters[output] = parameters[kind.embedding]
    return parameters
