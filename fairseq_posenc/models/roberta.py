"""fairseq's RoBERTa with positions, segments and further heads: its encoder, and its heads.

BERT, Devlin et al., arXiv 1810.04805; RoBERTa, Liu et al., arXiv 1907.11692.
"""

import logging
from typing import Any, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.models.roberta.model import RobertaEncoder, RobertaModel, base_architecture
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from fairseq_posenc.checkpoints.warm_start import (
    RELATION_HEAD,
    SPAN_BOUNDARY_HEAD,
    State,
    leave_out_head,
)
from fairseq_posenc.configuration.resolve import nested
from fairseq_posenc.flags.options import Options
from fairseq_posenc.layers.heads import (
    MaskedLMHead,
    NormedHead,
    SpanBoundaryHead,
    TiedHead,
    refuse_tokens,
)
from fairseq_posenc.layers.norms import apply_norms
from fairseq_posenc.layers.parameters import apply_norms_and_biases, initialise
from fairseq_posenc.stacks.encoder import Wanted
from fairseq_posenc.stacks.funnel import FunnelEncoder
from fairseq_posenc.stacks.sentence_encoder import MaskDecodingEncoder, SentenceEncoder

logger = logging.getLogger(__name__)


class MaskedLMEncoder(RobertaEncoder):
    """Sentence encoder and language-model head, with fairseq's names.

    Args:
        args: flat configuration of the masked-LM family, complete.
        embed_tokens: token embedding (V, E), if not to be built here.
    """

    def __init__(
        self, args: Options, dictionary: Dictionary, embed_tokens: Optional[nn.Embedding] = None
    ) -> None:
        super(RobertaEncoder, self).__init__(dictionary)  # RoBERTa's own shares no embedding
        base_architecture(args)
        self.args = args
        size, symbols = args.encoder_input_dim, len(dictionary)
        if embed_tokens is None:
            embed_tokens = nn.Embedding(symbols, size, dictionary.pad())
        self.sentence_encoder = _build_encoder(args, dictionary, embed_tokens)
        weight = embed_tokens.weight
        if args.untie_weights_roberta:
            output = nn.Linear(size, symbols, bias=False)
            initialise(output, args)
            weight = output.weight
        if args.lm_head == "tied":
            self.lm_head: Any = TiedHead(weight)
            return
        channels, activation = args.encoder_embed_dim, args.activation_fn
        self.lm_head = MaskedLMHead(channels, size, symbols, activation, weight)
        apply_norms_and_biases(self.lm_head, args)

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        masked_tokens: Optional[Tensor] = None,
        segment_labels: Optional[Tensor] = None,
        by_token: bool = True,
        by_mask: Optional[bool] = None,
        document_starts: Optional[Tensor] = None,
        **unused: object,
    ) -> Tuple[Tensor, Any]:
        """Logits of the tokens.

        Args:
            src_tokens: (B, T), starting with [CLS].
            features_only: stop before the head.
            return_all_hiddens: also return the states between layers.
            masked_tokens: (B, T), True where logits are needed; default everywhere.
            segment_labels: (B, T) segment of each token; default: by ``--segments``.
            by_token: as in :class:`.Wanted`.
            by_mask: as in :class:`.Wanted`; by default True unless *features_only*.
            document_starts: as for :meth:`.SentenceEncoder.features`.
            unused: what else fairseq's task puts into a batch, such as ``src_lengths``.

        Returns:
            logits (B, T, V), or (N, V) for N *masked_tokens*, or features (B, T, C), where
            T may be smaller unless *by_token*; and ``{"inner_states": [(T, B, C), ...] or None}``.
        """
        by_mask = not features_only if by_mask is None else by_mask
        wanted = Wanted(return_all_hiddens, by_token, by_mask)
        encoded = self.sentence_encoder.features(
            src_tokens, segment_labels, wanted, document_starts
        )
        x, states = encoded.x, None
        if return_all_hiddens:
            states = [state.transpose(0, 1) for state in encoded.states]  # (T, B, C), as in fairseq
        x = x if features_only else self.output_layer(x, masked_tokens=masked_tokens)
        return x, {"inner_states": states}

    def extract_features(
        self, src_tokens: Tensor, return_all_hiddens: bool = False, **kwargs: Any
    ) -> Tuple[Tensor, Any]:
        """Features (B, T, C) of the tokens; the arguments are those of :meth:`forward`."""
        return self(src_tokens, True, return_all_hiddens, **kwargs)


def _build_encoder(args: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> Any:
    """The sentence encoder that the flags select, with BERT's initialisation."""
    cfg = nested(args)
    cfg.max_source_positions = args.num_positions  # the rows of fairseq's learned table
    kind = SentenceEncoder
    if args.funnel_stages is not None:
        kind = FunnelEncoder
    elif args.mask_decoder_layers:
        kind = MaskDecodingEncoder
    return kind(cfg, dictionary, embed_tokens).apply(init_bert_params)


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
        """Add the head that predicts whether the second text of a pair follows the first (BERT)."""
        self.register_classification_head(RELATION_HEAD, num_classes=2)

    def register_span_boundary_head(self) -> None:
        """Add the head that predicts tokens of spans from the two next to the span."""
        head = SpanBoundaryHead(self.args.encoder_embed_dim, self.args.encoder_input_dim)
        apply_norms_and_biases(head, self.args)
        initialise(head.apply(init_bert_params), self.args)
        self.span_boundary_head = head

    def register_classification_head(
        self, name: str, num_classes: Any = None, inner_dim: Optional[int] = None, **kwargs: Any
    ) -> None:
        """Add a classifier of texts; see fairseq's RoBERTa for the arguments."""
        super().register_classification_head(name, num_classes, inner_dim, **kwargs)
        if self.args.pooler_norm:
            self.classification_heads[name] = self._normed_head(num_classes, False, inner_dim)
        if self.args.pooler == "mean" and name != RELATION_HEAD:
            self.classification_heads[name].register_forward_pre_hook(refuse_tokens)

    def register_token_head(self, name: str, num_classes: int) -> None:
        """Add a token classifier: a projection, or with ``--pooler-norm`` a ``NormedHead``."""
        if self.args.pooler_norm:
            self.token_heads[name] = self._normed_head(num_classes, True)
        else:
            self.token_heads[name] = nn.Linear(self.args.encoder_embed_dim, num_classes)

    def _normed_head(
        self, classes: int, by_token: bool, inner_dim: Optional[int] = None
    ) -> NormedHead:
        """A head with a norm, of the kind that ``--norm`` selects."""
        head = NormedHead(
            by_token,
            input_dim=self.args.encoder_embed_dim,
            inner_dim=inner_dim or self.args.encoder_embed_dim,
            num_classes=classes,
            activation_fn=self.args.pooler_activation_fn,
            pooler_dropout=self.args.pooler_dropout,
            q_noise=self.args.quant_noise_pq,
            qn_block_size=self.args.quant_noise_pq_block_size,
            do_spectral_norm=self.args.spectral_norm_classification_head,
        )
        apply_norms(head, self.args)
        return head

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
        last = "out_proj.weight" if self.args.pooler_norm else "weight"
        saved = [key for key in state_dict if key.startswith(prefix)]
        names = {key: key[len(prefix) :].split(".")[0] for key in saved}
        outputs = {head: state_dict.get(f"{prefix}{head}.{last}") for head in names.values()}
        classes = {head: 0 if weight is None else len(weight) for head, weight in outputs.items()}
        for key, head in names.items():
            if head not in self.token_heads and self.args.load_checkpoint_heads:
                self.register_token_head(head, classes[head])
            if head not in self.token_heads:
                logger.warning("left out %s; --load-checkpoint-heads would keep it", key)
                del state_dict[key]
            elif classes[head] != self.token_heads[head].out_features:
                logger.warning("left out %s, which is of another size", key)
                del state_dict[key]
        for key, value in self.token_heads.state_dict().items():
            state_dict.setdefault(prefix + key, value)  # a new head, to be trained
