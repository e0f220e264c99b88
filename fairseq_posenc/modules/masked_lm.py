"""Encoder and head of a masked language model: RoBERTa's, with positions and segments.

BERT, Devlin et al., arXiv 1810.04805; RoBERTa, Liu et al., arXiv 1907.11692.
"""

import logging
from typing import Any, Dict, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.models.roberta.model import RobertaEncoder
from fairseq.modules import LayerNorm
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from fairseq_posenc.config.resolve import nested
from fairseq_posenc.config.stacks import masked_lm_stack
from fairseq_posenc.encodings import Stack
from fairseq_posenc.initialisation import apply_norms_and_biases
from fairseq_posenc.modules.encoder import TransformerEncoder
from fairseq_posenc.modules.heads import MaskedLMHead, TiedHead
from fairseq_posenc.modules.segments import segment_labels
from fairseq_posenc.options import Options

logger = logging.getLogger(__name__)

#: Batches of training to wait for a second text.
PATIENCE = 10


class SentenceEncoder(TransformerEncoder):
    """Transformer encoder with optional segment embeddings and embedding projection.

    Args:
        cfg: fairseq's nested Transformer configuration, with ``num_segments`` and ``causal``.
        dictionary: the dictionary.
        embed_tokens: token embedding (V, E); if E is not C, a projection follows the embeddings.
    """

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        size, channels = embed_tokens.embedding_dim, cfg.encoder.embed_dim
        self.embed_segments = nn.Embedding(cfg.num_segments, size) if cfg.num_segments else None
        self.num_segments = cfg.num_segments
        self.reads_pairs = cfg.segments == "pairs"
        self.separator = dictionary.eos()
        self.batches_to_wait = PATIENCE if cfg.num_segments > 1 else 0
        self.embed_project = nn.Linear(size, channels) if size != channels else None
        if cfg.encoder.normalize_before and size != channels:
            self.layer_norm: Optional[nn.Module] = LayerNorm(channels)
        apply_norms_and_biases(self, cfg)

    #: what to call it with where only [CLS] is read
    by_text: Dict[str, bool] = {}

    def stack(self, cfg: Options) -> Stack:
        """The properties of this encoder that its position encodings depend on."""
        return masked_lm_stack(cfg)

    def embed(self, src_tokens: Tensor, segment_labels: Optional[Tensor]) -> Tensor:
        """Token plus segment embeddings (B, T, E); without labels, segments by ``--segments``."""
        x = self.embed_tokens(src_tokens)
        if self.embed_segments is None:
            return x
        if segment_labels is None and self.reads_pairs:
            segment_labels = self.segment_labels(src_tokens)
        if self.training and self.batches_to_wait > 0:
            self._look_for_pairs(segment_labels)
        if segment_labels is None:
            return x + self.embed_segments.weight[0]
        return x + self.embed_segments(segment_labels)

    def segment_labels(self, src_tokens: Tensor) -> Tensor:
        """The segments of texts or pairs (B, T); see :func:`.segments.segment_labels`."""
        return segment_labels(src_tokens, self.padding_idx, self.separator, self.num_segments)

    def _look_for_pairs(self, labels: Optional[Tensor]) -> None:
        """Log once in training if no batch so far has a second text."""
        found = labels is not None and bool(labels.any())
        self.batches_to_wait = 0 if found else self.batches_to_wait - 1
        if self.batches_to_wait == 0 and not found:
            logger.info(
                "--num-segments %d: no second text in the first %d batches, so only segment 0 is "
                "trained; pairs are input0 and input1 of --task sentence_prediction, or lines "
                "'text </s> text' of --task masked_lm --sample-break-mode eos",
                self.num_segments,
                PATIENCE,
            )

    def forward_embedding(
        self, src_tokens: Tensor, token_embedding: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tensor]:
        """Input of the first layer (B, T, C), and the embeddings it comes from (B, T, E)."""
        x, embedding = super().forward_embedding(src_tokens, token_embedding)
        return (x if self.embed_project is None else self.embed_project(x)), embedding


class MaskedLMEncoder(RobertaEncoder):
    """Sentence encoder and language-model head, with fairseq's names.

    Args:
        cfg: flat configuration of the masked-LM family, complete.
        dictionary: the dictionary.
    """

    encoder_class = SentenceEncoder

    def build_embedding(self, vocab_size: int, embedding_dim: int, padding_idx: int) -> nn.Module:
        """Token embedding (V, E)."""
        return super().build_embedding(vocab_size, self.args.encoder_input_dim, padding_idx)

    def build_encoder(
        self, args: Options, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> nn.Module:
        """The sentence encoder, with BERT's initialisation."""
        cfg = nested(args)
        cfg.max_source_positions = args.num_positions  # the rows of fairseq's learned table
        return self.encoder_class(cfg, dictionary, embed_tokens).apply(init_bert_params)

    def build_lm_head(
        self, embed_dim: int, output_dim: int, activation_fn: str, weight: Optional[Tensor]
    ) -> nn.Module:
        """The language-model head, its last weight tied to the embedding if one is given."""
        size = self.args.encoder_input_dim
        if self.args.lm_head == "tied":
            return TiedHead(output_dim, size, weight)
        head = MaskedLMHead(embed_dim, size, output_dim, activation_fn, weight)
        apply_norms_and_biases(head, self.args)
        return head

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        masked_tokens: Optional[Tensor] = None,
        segment_labels: Optional[Tensor] = None,
        by_token: bool = True,
        **unused: object,
    ) -> Tuple[Tensor, Any]:
        """Logits of the tokens.

        Args:
            src_tokens: (B, T), starting with [CLS].
            features_only: stop before the head.
            return_all_hiddens: also return the states between layers.
            masked_tokens: (B, T), True where logits are needed; default everywhere.
            segment_labels: (B, T) segment of each token; default: by ``--segments``.
            by_token: whether features of all tokens are needed, or that of [CLS] alone, for which a
                Funnel encoder computes less.
            unused: ignored, as in fairseq (``src_lengths``).

        Returns:
            logits (B, T, V), or (N, V) for N *masked_tokens*, or features (B, T, C), of which there
            may be fewer unless *by_token*; and
            ``{"inner_states": [(T, B, C), ...] or None}``.
        """
        encoded = self.sentence_encoder(
            src_tokens,
            return_all_hiddens=return_all_hiddens,
            token_embeddings=self.sentence_encoder.embed(src_tokens, segment_labels),
            **({} if by_token else self.sentence_encoder.by_text),
        )
        x = encoded["encoder_out"][0].transpose(0, 1)  # (T, B, C) -> (B, T, C)
        extra = {"inner_states": encoded["encoder_states"] if return_all_hiddens else None}
        return (x if features_only else self.output_layer(x, masked_tokens=masked_tokens)), extra
