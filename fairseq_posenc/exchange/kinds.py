"""The kinds of models of this plug-in that can be converted, and the names of their parameters."""

from argparse import Namespace
from typing import Any, Dict, NamedTuple, Tuple

from torch import Tensor

from fairseq_posenc.models.family import Family
from fairseq_posenc.models.language_model import LANGUAGE_MODEL
from fairseq_posenc.models.masked_lm import MASKED_LM

#: Flags of a model, by name.
Settings = Dict[str, Any]
#: Parameters by their names in models of this plug-in.
Parameters = Dict[str, Tensor]

PAD = 1
CLASSIFICATION_HEADS = "classification_heads."
TOKEN_HEADS = "token_heads."


class Kind(NamedTuple):
    """A kind of model.

    Args:
        family: its flags.
        task: the task that trains it.
        criterion: the name of its loss, and that of the class.
        stack: start of the names of embeddings and layers.
        head: start of the names in the output layer.
        length: the setting of the longest input.
        adds_mask: whether the task appends ``<mask>`` to the symbols in dict.txt.
    """

    family: Family
    task: str
    criterion: Tuple[str, str]
    stack: str
    head: str
    length: str
    adds_mask: bool

    @property
    def arch(self) -> str:
        """The value of ``--arch``."""
        return self.family.model

    @property
    def embedding(self) -> str:
        """The name of the token embedding."""
        return self.stack + "embed_tokens.weight"

    def complete(self, settings: Settings) -> Settings:
        """Complete settings by their defaults, as when a model is built.

        Raises:
            UsageError: they contradict each other.
        """
        cfg = Namespace(**settings)
        self.family.complete(cfg, {}, None)
        return vars(cfg)


MASKED = Kind(
    MASKED_LM,
    "masked_lm",
    ("masked_lm", "MaskedLmLoss"),
    "encoder.sentence_encoder.",
    "encoder.lm_head.",
    "max_positions",
    adds_mask=True,
)
CAUSAL = Kind(
    LANGUAGE_MODEL,
    "language_modeling",
    ("cross_entropy", "CrossEntropyCriterion"),
    "decoder.",
    "decoder.output_projection.",
    "max_target_positions",
    adds_mask=False,
)
KINDS = (MASKED, CAUSAL)

#: Of a masked language model.
ENCODER, LM_HEAD, EMBEDDING = MASKED.stack, MASKED.head, MASKED.embedding
SEGMENTS = ENCODER + "embed_segments.weight"
