"""Checkpoints of this plug-in: building them from settings and parameters, and reading them.

The files are the same as those of ``fairseq-train --task masked_lm --arch posenc_masked_lm``, but
without optimiser state: all fairseq commands, averaging, ``--restore-file`` and
``--finetune-from-model`` accept them.
"""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from argparse import Namespace
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks import FairseqTask
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_posenc.checkpoints.dictionary import find_dictionary
from fairseq_posenc.checkpoints.reading import Checkpoint, read_checkpoint
from fairseq_posenc.convert.dictionary import read_dictionary
from fairseq_posenc.errors import UsageError, flag_of
from fairseq_posenc.loading.settings import is_ours, saved_settings
from fairseq_posenc.models.masked_lm import MASKED_LM
from fairseq_posenc.models.segments import PAIRS
from fairseq_posenc.settings import ROLES

#: Flags of :data:`ARCH`, by name.
Settings = Dict[str, Any]
#: Parameters by their names in models of this plug-in.
Parameters = Dict[str, Tensor]

ARCH = MASKED_LM.model
PAD = 1
ENCODER = "encoder.sentence_encoder."
EMBEDDING = ENCODER + "embed_tokens.weight"
SEGMENTS = ENCODER + "embed_segments.weight"
LM_HEAD = "encoder.lm_head."
CLASSIFICATION_HEADS = "classification_heads."
TOKEN_HEADS = "token_heads."


class NativeCheckpoint(NamedTuple):
    """A masked language model of this plug-in, read from its file.

    Args:
        path: the file.
        settings: flags of the model by their current names, completed by defaults.
        parameters: in float32.
        symbols: the symbols in order, ``<s>`` to ``<mask>``.
        dictionary: their dict.txt.
    """

    path: str
    settings: Settings
    parameters: Parameters
    symbols: List[str]
    dictionary: str

    def heads(self, prefix: str) -> List[str]:
        """Names of the heads under :data:`CLASSIFICATION_HEADS` or :data:`TOKEN_HEADS`."""
        names = [name[len(prefix) :] for name in self.parameters if name.startswith(prefix)]
        return list(dict.fromkeys(name.split(".")[0] for name in names))


def complete_settings(settings: Settings) -> Settings:
    """Complete settings by their defaults, as when a model is built.

    Raises:
        UsageError: they contradict each other.
    """
    cfg = Namespace(**settings)
    MASKED_LM.complete(cfg, {}, None)
    return vars(cfg)


def new_checkpoint(settings: Settings, parameters: Parameters, data: str) -> Checkpoint:
    """A checkpoint in fairseq's format, before the first update.

    Args:
        settings: the flags that differ from the defaults.
        parameters: the parameters.
        data: the folder with dict.txt, as given to ``fairseq-train``.
    """
    length = str(settings["max_positions"])
    flags = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", ARCH]
    args = options.parse_args_and_arch(
        options.get_training_parser(),
        ["", *flags, "--tokens-per-sample", length],
        modify_parser=lambda parser: parser.set_defaults(**settings),
    )
    cfg = convert_namespace_to_omegaconf(args)
    cfg.task.data = data  # set last: Hydra would parse it
    if cfg.model.num_segments > 1:
        cfg.model.segments = PAIRS  # as these models were trained
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": parameters,
        "criterion": None,
        "optimizer_history": [
            {
                "criterion_name": "MaskedLmLoss",
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


def flags_of(settings: Settings) -> str:
    """The command-line flags of a model, for training it further.

    Args:
        settings: the settings; defaults and former names are left out.
    """
    words = ["--arch", ARCH]
    for field in dataclasses.fields(MASKED_LM.dataclass):
        value = settings.get(field.name)
        if field.metadata.get("role") not in ROLES or value in (None, field.metadata["default"]):
            continue
        if value is False:  # no flag turns off a default
            words.append(f"(with fairseq-hydra-train: model.{field.name}=false)")
        else:
            words += [flag_of(field.name)] + ([] if value is True else [str(value)])
    return " ".join(words)


def build(checkpoint: Checkpoint, dictionary: str) -> nn.Module:
    """The untrained model that the settings of *checkpoint* describe, for a dict.txt.

    Its parameters are the same on every call.
    """
    cfg = OmegaConf.create(checkpoint["cfg"])
    with _task(dictionary) as task, torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return task.build_model(cfg.model)


def load(path: str, dictionary: str) -> nn.Module:
    """Load a checkpoint as fairseq's commands do, including heads, in evaluation mode.

    Args:
        path: the file.
        dictionary: its dict.txt.
    """
    with _task(dictionary) as task:
        models, _, _ = checkpoint_utils.load_model_ensemble_and_task(
            [path], arg_overrides={"load_checkpoint_heads": True}, task=task
        )
    return models[0].eval()


@contextlib.contextmanager
def _task(dictionary: str) -> Iterator[FairseqTask]:
    """``--task masked_lm`` for a dictionary file of any name."""
    with tempfile.TemporaryDirectory() as data:
        shutil.copy(dictionary, os.path.join(data, "dict.txt"))
        yield tasks.setup_task(OmegaConf.create({"_name": "masked_lm", "data": data}))


def read_native(path: str, dictionary: Optional[str]) -> NativeCheckpoint:
    """Read a checkpoint of this plug-in, with its dictionary.

    Args:
        path: the file.
        dictionary: its dict.txt, if that is neither beside it nor in its training data.

    Raises:
        UsageError: it is not a masked language model of this plug-in, or the dictionary is missing
            or has another size.
    """
    checkpoint = read_checkpoint(path)
    saved: Parameters = checkpoint["model"]
    settings = saved_settings(checkpoint)
    if EMBEDDING not in saved or not is_ours(settings):
        kind = settings.get("_name") or settings.get("arch")
        raise UsageError(
            f"{path}: is not a masked language model of this plug-in (its model is {kind}); give a "
            f"checkpoint of --arch {ARCH} or one of its presets"
        )
    dictionary = dictionary or find_dictionary(path, checkpoint, "--vocab")
    symbols = read_dictionary(dictionary)
    if len(symbols) != len(saved[EMBEDDING]):
        raise UsageError(
            f"{path}: has {len(saved[EMBEDDING])} token embeddings, but {dictionary} and "
            f"fairseq's special symbols make {len(symbols)}; give the right dictionary with --vocab"
        )
    parameters = {key: value.float() for key, value in saved.items() if key != ENCODER + "version"}
    return NativeCheckpoint(path, complete_settings(settings), parameters, symbols, dictionary)
