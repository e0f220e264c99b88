"""Heads that tasks add to a masked language model, and what a checkpoint has of them."""

import logging
from typing import Any

from fairseq.models.roberta.model import RobertaModel
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import nn

from fairseq_posenc.checkpoints.warm_start import (
    RELATION_HEAD,
    SPAN_BOUNDARY_HEAD,
    State,
    leave_out_head,
)
from fairseq_posenc.flags.options import Options
from fairseq_posenc.layers.heads import SpanBoundaryHead
from fairseq_posenc.layers.initialisation import apply_norms_and_biases, initialise
from fairseq_posenc.stacks.masked_lm import MaskedLMEncoder

logger = logging.getLogger(__name__)


class HeadedModel(RobertaModel):
    """RoBERTa with token classifiers and heads of pre-training.

    Args:
        args: complete flat configuration.
        encoder: the encoder with its language-model head.
    """

    def __init__(self, args: Options, encoder: MaskedLMEncoder) -> None:
        super().__init__(args, encoder)
        self.token_heads = nn.ModuleDict()
        self.span_boundary_head: Any = None  # see register_span_boundary_head

    def register_relation_head(self) -> None:
        """Add the head that tells pairs of texts in order from others, as BERT has it."""
        self.register_classification_head(RELATION_HEAD, num_classes=2)

    def register_span_boundary_head(self) -> None:
        """Add the head that predicts tokens of spans from the two next to the span."""
        head = SpanBoundaryHead(self.args.encoder_embed_dim, self.args.encoder_input_dim)
        apply_norms_and_biases(head, self.args)
        initialise(head.apply(init_bert_params), self.args)
        self.span_boundary_head = head

    def register_token_head(self, name: str, num_classes: int) -> None:
        """Add a token classifier, a projection of the features (B, T, C)."""
        self.token_heads[name] = nn.Linear(self.args.encoder_embed_dim, num_classes)

    def head(self, name: str) -> Any:
        """The classification or token head of this name."""
        return (self.token_heads if name in self.token_heads else self.classification_heads)[name]

    def upgrade_state_dict_named(self, state_dict: State, name: str) -> None:
        """Adapt token heads, leave out those of pre-training, and do what fairseq does."""
        if RELATION_HEAD not in self.classification_heads and not self.args.load_checkpoint_heads:
            leave_out_head(state_dict, name, f"classification_heads.{RELATION_HEAD}", "--pairs")
        super().upgrade_state_dict_named(state_dict, name)
        self._adapt_span_boundary_head(state_dict, f"{name}." if name else "")
        self._adapt_token_heads(state_dict, f"{name}.token_heads." if name else "token_heads.")

    def _adapt_span_boundary_head(self, state_dict: State, prefix: str) -> None:
        if self.span_boundary_head is None:
            flag = "--span-boundary-objective"
            leave_out_head(state_dict, prefix[:-1], SPAN_BOUNDARY_HEAD, flag)
            return
        for key, value in self.span_boundary_head.state_dict().items():  # a new head is trained
            state_dict.setdefault(f"{prefix}{SPAN_BOUNDARY_HEAD}.{key}", value)

    def _adapt_token_heads(self, state_dict: State, prefix: str) -> None:
        for key in [key for key in state_dict if key.startswith(prefix)]:
            head = key[len(prefix) :].split(".")[0]
            if head not in self.token_heads and self.args.load_checkpoint_heads:
                self.register_token_head(head, len(state_dict[key]))
            if head not in self.token_heads:
                logger.warning("left out %s; --load-checkpoint-heads would keep it", key)
                del state_dict[key]
            elif len(state_dict[key]) != self.token_heads[head].out_features:
                logger.warning("left out %s, which is of another size", key)
                del state_dict[key]
        for key, value in self.token_heads.state_dict().items():
            state_dict.setdefault(prefix + key, value)  # a new head, to be trained
