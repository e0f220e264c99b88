"""The kinds of models that can be converted, and the names of their settings and parameters."""

import dataclasses
import re
from argparse import Namespace
from typing import Any, Dict, NamedTuple, Optional, Tuple

from fairseq.models import ARCH_MODEL_NAME_REGISTRY
from torch import Tensor

from fairseq_posenc.checkpoints.reading import Checkpoint, read_checkpoint, refuse_partial
from fairseq_posenc.checkpoints.settings import STACKS, architecture, saved_settings
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.flags.settings import ROLES
from fairseq_posenc.models.family import Family
from fairseq_posenc.models.language_model import LANGUAGE_MODEL
from fairseq_posenc.models.masked_lm import MASKED_LM
from fairseq_posenc.models.translation import TRANSLATION as TRANSLATION_FAMILY

#: Settings of a model, keyed by name.
Settings = Dict[str, Any]
#: Parameters, keyed by their names in models of this plug-in.
Parameters = Dict[str, Tensor]

#: Names under which fairseq 0.12.2 keeps copies of its layers' parameters.
COPIES = re.compile(r"layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$")
#: Settings that ``model-flags`` does not print, because they follow from the encoding or the data,
#: or concern a single training run; packs add some.
FOLLOWING = [
    *("position_encoding", "rotary_original_length", "num_positions", "segments"),
    *("no_token_positional_embeddings", *(f"{side}_learned_pos" for side in SIDES)),
    *(f"{side}_position_encoding" for side in SIDES),
]
PAD, END = 1, 2  # the numbers of ``<pad>`` and ``</s>`` in every dictionary of fairseq
CLASSIFICATION_HEADS = "classification_heads."
TOKEN_HEADS = "token_heads."
#: The head that ``--task sentence_prediction`` looks for.
SENTENCE_HEAD = "sentence_classification_head"


class Kind(NamedTuple):
    """A kind of model."""

    name: str  # what such a model is called in messages and in exported models
    family: Family  # the model family, with its flags
    stock: str  # fairseq's model of the same structure
    tasks: Tuple[str, ...]  # the tasks that it is trained on, the usual one first
    criterion: Tuple[str, str]  # the name of its loss, and the name of the loss's class
    stack: str  # prefix of the parameters of embeddings and layers
    head: str  # prefix of the parameters of the output layer
    length: str  # the setting that limits the input length
    # each length setting of the task, with the setting of the model that has the same value
    lengths: Tuple[Tuple[str, str], ...]
    # the names of the languages of an imported model, if the task has languages
    languages: Tuple[str, ...] = ()
    adds_mask: bool = False  # whether the task appends ``<mask>`` to the symbols in dict.txt

    @property
    def task(self) -> str:
        """The value of ``--task``."""
        return self.tasks[0]

    @property
    def arch(self) -> str:
        """The value of ``--arch``."""
        return self.family.model

    @property
    def embedding(self) -> str:
        """The name of the token embedding."""
        return self.stack + "embed_tokens.weight"

    def changed(self, settings: Settings) -> Settings:
        """The settings of a trained model that differ from the defaults, under current names."""
        return {
            field.name: settings[field.name]
            for field in dataclasses.fields(self.family.dataclass)
            if field.metadata.get("role") in ROLES
            and settings.get(field.name) not in (None, field.metadata.get("default"))
        }

    def complete(self, settings: Settings) -> Settings:
        """The *settings*, completed with the defaults as when a model is built."""
        cfg = Namespace(**settings)
        self.family.complete(cfg, {}, None)
        return vars(cfg)


TRANSLATION = Kind(
    "translation",
    TRANSLATION_FAMILY,
    "transformer",
    ("translation",),
    ("label_smoothed_cross_entropy", "LabelSmoothedCrossEntropyCriterion"),
    STACKS["transformer"],
    "decoder.output_projection.",
    "max_source_positions",
    tuple((name, name) for name in ("max_source_positions", "max_target_positions")),
    ("source", "target"),
)
CAUSAL = Kind(
    "language model",
    LANGUAGE_MODEL,
    "transformer_lm",
    LANGUAGE_MODEL.tasks,
    ("cross_entropy", "CrossEntropyCriterion"),
    STACKS["transformer_lm"],
    "decoder.output_projection.",
    "max_target_positions",
    (("tokens_per_sample", "max_target_positions"),),
)
MASKED = Kind(
    "encoder",
    MASKED_LM,
    "roberta",
    MASKED_LM.tasks,
    ("masked_lm", "MaskedLmLoss"),
    STACKS["roberta"],
    "encoder.lm_head.",
    "max_positions",
    (("tokens_per_sample", "max_positions"),),
    adds_mask=True,
)

KINDS = (TRANSLATION, CAUSAL, MASKED)

#: Names and prefixes of a masked language model's parameters; HEADS: prefixes of output layers.
ENCODER, LM_HEAD = MASKED.stack, MASKED.head
HEADS = (LM_HEAD, CLASSIFICATION_HEADS, TOKEN_HEADS)


def kind_of(name: Optional[str]) -> Optional[Kind]:
    """The kind of an architecture of this plug-in or of fairseq; None for other architectures."""
    model = ARCH_MODEL_NAME_REGISTRY.get(name, name)
    return next((kind for kind in KINDS if model in (kind.arch, kind.stock)), None)


class Trained(NamedTuple):
    """A checkpoint of a whole model that has not been built yet."""

    checkpoint: Checkpoint
    settings: Settings  # of the model, under their current names
    arch: str  # the name of its architecture
    kind: Optional[Kind]  # None if no kind has this structure


def read_trained(path: str, lazy: bool = False) -> Trained:
    """Read the checkpoint of a whole model; *lazy* leaves its parameters on the disk."""
    checkpoint = read_checkpoint(path, lazy)
    refuse_partial(path, checkpoint["model"])
    settings = saved_settings(checkpoint)
    arch = architecture(settings)
    return Trained(checkpoint, settings, arch, kind_of(arch))
