"""Checkpoints of this plug-in: building them from settings and parameters, and reading them.

The files are like the checkpoints that ``fairseq-train`` writes for ``posenc_masked_lm``,
``posenc_lm`` and ``posenc_transformer``, but without optimiser state: all fairseq commands,
averaging, ``--restore-file`` and ``--finetune-from-model`` accept the files.
"""

import dataclasses
from argparse import Namespace
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf
from torch import nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints import loader
from fairseq_posenc.checkpoints.inherit import as_ours
from fairseq_posenc.checkpoints.loader import find_dictionary, read_dictionary
from fairseq_posenc.checkpoints.reading import Checkpoint
from fairseq_posenc.checkpoints.settings import is_ours, task_of
from fairseq_posenc.exchange.formats import Flag
from fairseq_posenc.exchange.huggingface.splitters import Subwords
from fairseq_posenc.flags.options import SIDES, Options, option
from fairseq_posenc.layers.heads import PRETRAINING
from fairseq_posenc.models import kinds
from fairseq_posenc.models.segments import PAIRS
from fairseq_posenc.serving.model_folder import Search

VOCAB = Flag("vocab", "the vocabulary, if it is not beside the model", "FILE")
#: fairseq-generate's search.
SEARCH = Search(beam=5, lenpen=1.0)


class NativeCheckpoint(NamedTuple):
    """A model of this plug-in, read from its file."""

    path: str  # the file
    settings: kinds.Settings  # flags of the model by their current names, completed by defaults
    parameters: kinds.Parameters  # in float32
    symbols: List[str]  # the symbols in order, from ``<s>``
    dictionary: str  # the path of its dict.txt
    kind: kinds.Kind = kinds.MASKED  # what it is
    task: Options = Namespace()  # the settings of the task that it was trained on
    data: Optional[str] = None  # the folder of its training data
    subwords: Optional[Subwords] = None  # how its text was prepared, if that is known
    notes: Sequence[str] = ()  # what a user of an export should know
    options: Mapping[str, Any] = MappingProxyType({})  # values of the flags of the export
    search: Search = SEARCH  # that of a translation model
    loaded: Any = None  # the model with its task, as the loader has them

    @property
    def dictionaries(self) -> Dict[str, Dictionary]:
        """The dictionaries of a translation model by side."""
        task = self.loaded.task
        return dict(zip(SIDES, (task.source_dictionary, task.target_dictionary)))

    def load(self, path: str, changes: Mapping[str, Any]) -> nn.Module:
        """This model, or another with the same dictionaries and *changes* of its settings."""
        same = path == self.path
        loaded = self.loaded if same else _load(path, self.kind, self.loaded.task, changes)
        model: nn.Module = loaded.model
        return model

    def heads(self, prefix: str) -> List[str]:
        """Names of the heads under :data:`CLASSIFICATION_HEADS` or :data:`TOKEN_HEADS`."""
        names = [name[len(prefix) :] for name in self.parameters if name.startswith(prefix)]
        return list(dict.fromkeys(name.split(".")[0] for name in names))


def new_checkpoint(
    settings: kinds.Settings, data: str, kind: kinds.Kind = kinds.MASKED
) -> Checkpoint:
    """A checkpoint in fairseq's format, before the first update and without parameters.

    Args:
        settings: the flags that differ from the defaults.
        data: the folder with dict.txt, as given to ``fairseq-train``.
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
        cfg.model.segments = PAIRS  # these models were trained so
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": {},
        "criterion": None,
        "optimizer_history": [
            {
                "criterion_name": kind.criterion[1],
                "optimizer_name": None,
                "lr_scheduler_state": {},
                "num_updates": 0,
            }
        ],
        "task_state": {},
        "extra_state": {
            "metrics": {},
            "previous_training_time": 0.0,
            "train_iterator": {"epoch": 1, "iterations_in_epoch": 0, "shuffle": True},
        },
        "last_optimizer_state": None,
    }


def flags_of(settings: kinds.Settings, kind: kinds.Kind = kinds.MASKED) -> str:
    """The command-line flags of a model, for training it further."""
    words = ["--arch", kind.arch]
    for name, value in kind.changed(settings).items():
        if value is False:  # no flag turns off a default
            words.append(f"(with fairseq-hydra-train: model.{name}=false)")
        else:
            words += [flag_of(name)] + ([] if value is True else [str(value)])
    return " ".join(words)


def build(checkpoint: Checkpoint, dictionary: str, kind: kinds.Kind = kinds.MASKED) -> nn.Module:
    """The untrained model that the settings of *checkpoint* describe, for a dict.txt.

    Its parameters are the same on every call.
    """
    cfg = OmegaConf.create(checkpoint["cfg"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return _task(dictionary, kind).build_model(cfg.model, from_checkpoint=True)


def load(path: str, dictionary: str, kind: kinds.Kind = kinds.MASKED) -> nn.Module:
    """Load a checkpoint as fairseq's commands do, including heads, in evaluation mode."""
    model: nn.Module = _load(path, kind, _task(dictionary, kind), {}).model
    return model


def _load(path: str, kind: kinds.Kind, task: Any, changes: Mapping[str, Any]) -> loader.Loaded:
    overrides: Dict[str, Any] = {"load_checkpoint_heads": True} if kind is kinds.MASKED else {}
    overrides.update(changes)
    overrides.update({name: default for name, (default, _) in _not_alone(kind).items()})
    return loader.load(path, overrides=overrides, task=task)


def _task(dictionary: str, kind: kinds.Kind) -> loader.BareTask:
    cfg = TASK_DATACLASS_REGISTRY[kind.task](_name=kind.task)
    return loader.BareTask(cfg, read_dictionary(dictionary, kind.adds_mask))


def read_native(path: str, dictionary: Optional[str]) -> NativeCheckpoint:
    """Read a checkpoint of this plug-in, with its dictionary.

    Args:
        dictionary: its dict.txt, if that is neither beside it nor in its training data.

    Raises:
        UsageError: it is neither a masked language model nor a language model of this plug-in, its
            parameters are not those that its settings describe, or the dictionary is missing or has
            another size.
    """
    checkpoint, settings, name, kind = kinds.read_trained(path)
    saved = checkpoint["model"]
    if kind is kinds.MASKED:
        settings = as_ours(settings)
    ours = kind in (kinds.MASKED, kinds.CAUSAL) and is_ours(settings)
    if kind is None or not ours or kind.embedding not in saved:
        raise UsageError(
            f"{path}: is not a masked language model or a language model of this plug-in (its "
            f"model is {name}); give a checkpoint of --arch {kinds.MASKED.arch} or "
            f"{kinds.CAUSAL.arch}, or of one of their presets"
        )
    dictionary = dictionary or find_dictionary(path, checkpoint, "--vocab")
    symbols = read_dictionary(dictionary, kind.adds_mask).symbols
    if len(symbols) != len(saved[kind.embedding]):
        raise UsageError(
            f"{path}: has {len(saved[kind.embedding])} token embeddings, but {dictionary} and "
            f"fairseq's special symbols make {len(symbols)}; give the right dictionary with --vocab"
        )
    loaded = _load(path, kind, _task(dictionary, kind), {})  # refuses damaged parameters
    parameters = {
        key: value.float()
        for key, value in saved.items()
        if key != kind.stack + "version" and not kinds.COPIES.search(key)
    }
    changes, notes = taken_alone(settings, kind)
    notes = [*notes, *_pretraining_heads(parameters)]
    complete = kind.complete({**settings, **changes})
    task = task_of(checkpoint)
    return NativeCheckpoint(
        *(path, complete, parameters, symbols, dictionary, kind, task, option(task, "data")),
        notes=notes,
        loaded=loaded,
    )


def _pretraining_heads(parameters: kinds.Parameters) -> Sequence[str]:
    """Notes on heads of pre-training; those that no class has are removed in place."""
    notes = []
    for module, flag in PRETRAINING.items():
        names = [name for name in parameters if name.startswith(f"{module}.")]
        name = module.partition(kinds.CLASSIFICATION_HEADS)[2]
        if names and name:
            notes.append(
                f"the head {name}, which only {flag} needs, is left out without --head {name}"
            )
        elif names:
            notes.append(f"{module}, which only {flag} needs, is left out")
        for parameter in () if name else names:
            del parameters[parameter]
    return notes


def _not_alone(kind: kinds.Kind) -> Dict[str, Tuple[Any, str]]:
    """Settings that matter for several texts in a sample: their defaults, and what these do."""
    declared = dataclasses.fields(kind.family.dataclass)
    told = [(field.name, field.metadata) for field in declared if field.metadata.get("alone")]
    return {name: (metadata["default"], metadata["alone"]) for name, metadata in told}


def taken_alone(settings: kinds.Settings, kind: kinds.Kind) -> Tuple[Dict[str, Any], Sequence[str]]:
    """The changes of *settings* for a foreign model, which has each text alone, and notes."""
    changes, notes = {}, []
    for name, (default, what) in _not_alone(kind).items():
        if settings.get(name) not in (None, default):
            changes[name] = default
            notes.append(f"trained with {flag_of(name)}: {what}")
    return changes, notes
