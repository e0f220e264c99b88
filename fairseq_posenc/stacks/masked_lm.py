"""Encoder and head of a masked language model: RoBERTa's, with positions and segments.

BERT, Devlin et al., arXiv 1810.04805; RoBERTa, Liu et al., arXiv 1907.11692.
"""

from typing import Any, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.models.roberta.model import RobertaEncoder
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from fairseq_posenc.configuration.resolve import nested
from fairseq_posenc.flags.options import Options
from fairseq_posenc.layers.heads import MaskedLMHead, TiedHead
from fairseq_posenc.layers.initialisation import apply_norms_and_biases
from fairseq_posenc.stacks.funnel import FunnelEncoder
from fairseq_posenc.stacks.mask_decoder import MaskDecodingEncoder
from fairseq_posenc.stacks.sentence_encoder import SentenceEncoder


class MaskedLMEncoder(RobertaEncoder):
    """Sentence encoder and language-model head, with fairseq's names.

    Args:
        cfg: flat configuration of the masked-LM family, complete.
        dictionary: the dictionary.
    """

    def build_embedding(self, vocab_size: int, embedding_dim: int, padding_idx: int) -> nn.Module:
        """Token embedding (V, E)."""
        return super().build_embedding(vocab_size, self.args.encoder_input_dim, padding_idx)

    def build_encoder(
        self, args: Options, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> nn.Module:
        """The sentence encoder, with BERT's initialisation."""
        cfg = nested(args)
        cfg.max_source_positions = args.num_positions  # the rows of fairseq's learned table
        kind = SentenceEncoder
        if args.funnel_stages is not None:
            kind = FunnelEncoder
        elif args.mask_decoder_layers:
            kind = MaskDecodingEncoder
        return kind(cfg, dictionary, embed_tokens).apply(init_bert_params)

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
        by_mask: Optional[bool] = None,
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
            by_mask: whether masked tokens are predicted from the features, which an enhanced mask
                decoder makes; default: unless *features_only*.
            unused: ignored, as in fairseq (``src_lengths``).

        Returns:
            logits (B, T, V), or (N, V) for N *masked_tokens*, or features (B, T, C), where
            T may be smaller unless *by_token*; and ``{"inner_states": [(T, B, C), ...] or None}``.
        """
        by_mask = not features_only if by_mask is None else by_mask
        encoded = self.sentence_encoder.features(
            src_tokens, segment_labels, by_token, by_mask, return_all_hiddens
        )
        x, states = encoded.x, None
        if return_all_hiddens:
            states = [state.transpose(0, 1) for state in encoded.states]  # (T, B, C), as in fairseq
        x = x if features_only else self.output_layer(x, masked_tokens=masked_tokens)
        return x, {"inner_states": states}
