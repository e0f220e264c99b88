"""fairseq's RoBERTa with positions and segments: from tokens to logits.

BERT, Devlin et al., arXiv 1810.04805; RoBERTa, Liu et al., arXiv 1907.11692; ALBERT, Lan et al.,
arXiv 1909.11942, section 3.1, for embeddings whose size differs from the layers' channels.
"""

import logging
from functools import partial
from typing import Any, Dict, List, Mapping, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.models.roberta.model import RobertaEncoder, base_architecture
from fairseq.modules import LayerNorm
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from fairseq_posenc.attention import Padding
from fairseq_posenc.configuration.features import masked_lm_stack
from fairseq_posenc.configuration.resolve import nested
from fairseq_posenc.encodings import PositionEncoding, Stack, all_encodings
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.registry import class_for
from fairseq_posenc.layers.heads import MaskedLMHead, TiedHead, mean_of
from fairseq_posenc.layers.parameters import apply_norms_and_biases, initialise
from fairseq_posenc.models.headed import HeadedModel
from fairseq_posenc.models.segments import (
    PATIENCE,
    FirstBatches,
    first_text_lengths,
    segment_labels,
)
from fairseq_posenc.stacks.encoder import Encoded, Requested, TransformerEncoder

logger = logging.getLogger(__name__)

_NO_PAIRS = (
    "no second text in the first %d batches, so only segment 0 is trained; give pairs: input0 and "
    "input1 of --task sentence_prediction, or lines 'text </s> text' of --task masked_lm "
    "--sample-break-mode eos"
)


class SentenceEncoder(TransformerEncoder):
    """Transformer encoder with optional segment embeddings and embedding projection.

    If the token embeddings (V, E) do not have C channels, they are projected to C channels.
    """

    began = False  # whether the first layer has been built
    #: whether :meth:`features` needs the tokens as they were before masking
    reads_original = False

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        size, channels = embed_tokens.embedding_dim, cfg.encoder.embed_dim
        self.embed_segments = nn.Embedding(cfg.num_segments, size) if cfg.num_segments else None
        self.num_segments = cfg.num_segments
        self.reads_pairs = cfg.segments == "pairs"
        self.separator = dictionary.eos()
        if any(kernel.reads_first_text for kernel in self.kernels()):
            marks = {"padding": self.padding_idx, "separator": self.separator}
            self.first_texts = partial(first_text_lengths, **marks)
        message = f"--num-segments {cfg.num_segments}: {_NO_PAIRS}"
        patience = PATIENCE if cfg.num_segments > 1 else 0
        self.first_batches = FirstBatches(logger.info, message, patience)
        if size != channels:
            self.embed_project = nn.Linear(size, channels)
        if cfg.encoder.normalize_before and size != channels:
            self.layer_norm: Optional[nn.Module] = LayerNorm(channels)
        apply_norms_and_biases(self, cfg)

    def stack(self, cfg: Options) -> Stack:
        """The properties of this encoder that its position encodings depend on."""
        return masked_lm_stack(cfg)

    def new_layer(self, cfg: Options, encoding: PositionEncoding) -> nn.Module:
        """One layer; under ``--skip-first-norm`` the first has no norm before its attention."""
        layer: Any = super().new_layer(cfg, encoding)
        if cfg.skip_first_norm and not self.began and self.kept[0] == 0:
            layer.self_attn_layer_norm = nn.Identity()
        self.began = True
        return layer

    def embed(self, src_tokens: Tensor, segment_labels: Optional[Tensor] = None) -> Tensor:
        """Token plus segment embeddings (B, T, E); ``--segments`` sets the labels by default."""
        x = self.embed_tokens(src_tokens)
        if self.embed_segments is None:
            return x
        if segment_labels is None and self.reads_pairs:
            segment_labels = self.segment_labels(src_tokens)
        if self.training and self.first_batches.left:
            self.first_batches.saw(segment_labels is not None and bool(segment_labels.any()))
        if segment_labels is None:
            return x + self.embed_segments.weight[0]
        return x + self.embed_segments(segment_labels)

    def segment_labels(self, src_tokens: Tensor) -> Tensor:
        """The segment of each token (B, T) of texts or pairs; see :func:`segment_labels`."""
        return segment_labels(src_tokens, self.padding_idx, self.separator, self.num_segments)

    def features(
        self,
        src_tokens: Tensor,
        requested: Requested,
        segment_labels: Optional[Tensor] = None,
        **unused: Any,
    ) -> Encoded:
        """Features of a batch of texts.

        *src_tokens* (B, T) start with [CLS].  ``--segments`` sets *segment_labels* (B, T) by
        default.  *unused* are other entries of a batch, such as ``src_lengths``, and ``original``
        (B, T) if :attr:`reads_original` is True: the tokens as they were before masking.
        """
        batch, _ = self.begin(src_tokens, self.embed(src_tokens, segment_labels))
        return self.run_layers(batch, requested)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
        padding: Optional[Padding] = None,
    ) -> Dict[str, List[Tensor]]:
        """Encode a batch of texts, as in the base class."""
        embedded = self.embed(src_tokens) if token_embeddings is None else token_embeddings
        return super().forward(src_tokens, src_lengths, return_all_hiddens, embedded, padding)


class MaskedLMEncoder(RobertaEncoder):
    """Sentence encoder and language-model head, with fairseq's parameter names."""

    def __init__(
        self, args: Options, dictionary: Dictionary, embed_tokens: Optional[nn.Embedding] = None
    ) -> None:
        super(RobertaEncoder, self).__init__(dictionary)  # RoBERTa's constructor takes no embedding
        # fairseq's RoBERTa has no flags for these two settings, and always adds a learned table
        tables = {each.input for each in all_encodings(args.position_encoding)} - {None}
        args.encoder_learned_pos = "learned" in tables
        args.no_token_positional_embeddings = not tables
        base_architecture(args)
        self.args = args
        size, symbols = args.encoder_input_dim, len(dictionary)
        if embed_tokens is None:
            embed_tokens = nn.Embedding(symbols, size, dictionary.pad())
        cfg = nested(args)
        cfg.max_source_positions = args.num_positions  # the rows of fairseq's learned table
        stack = class_for(SentenceEncoder, args)(cfg, dictionary, embed_tokens)
        self.sentence_encoder = stack.apply(init_bert_params)
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
        by_token: bool = True,
        predicting: Optional[bool] = None,
        **inputs: Any,
    ) -> Tuple[Tensor, Any]:
        """Logits of the tokens.

        Args:
            src_tokens: (B, T), starting with [CLS].
            features_only: stop before the head.
            return_all_hiddens: also return the states between layers.
            masked_tokens: (B, T), True for tokens whose logits are needed; by default all.
            by_token: as in :class:`.Requested`.
            predicting: as in :class:`.Requested`; by default True unless *features_only*.
            inputs: see :meth:`.SentenceEncoder.features`.

        Returns:
            a pair: logits (B, T, V), (N, V) for N *masked_tokens*, or features (B, T, C), which can
            lack tokens unless *by_token*; and ``{"inner_states": [(T, B, C), ...] or None}``.
        """
        predicting = not features_only if predicting is None else predicting
        requested = Requested(return_all_hiddens, by_token, predicting)
        encoded = self.sentence_encoder.features(src_tokens, requested, **inputs)
        x, states = encoded.x, encoded.states if return_all_hiddens else None
        x = x if features_only else self.output_layer(x, masked_tokens=masked_tokens)
        return x, {"inner_states": states}

    def extract_features(
        self, src_tokens: Tensor, return_all_hiddens: bool = False, **kwargs: Any
    ) -> Tuple[Tensor, Any]:
        """Features (B, T, C) of the tokens; the arguments are those of :meth:`forward`."""
        return self(src_tokens, True, return_all_hiddens, **kwargs)


class SentenceModel(HeadedModel):
    """RoBERTa with segments and pre-training heads; arguments as in the base class."""

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: Optional[str] = None,
        segment_labels: Optional[Tensor] = None,
        **inputs: Any,
    ) -> Tuple[Tensor, Any]:
        """Logits of the tokens, or of a classification or token head.

        ``--segments`` sets *segment_labels* (B, T) by default.  *classification_head_name* is a
        head to use in place of the language-model head.  *inputs* are arguments of
        :meth:`MaskedLMEncoder.forward` or, for logits of tokens, of :meth:`predict`.

        Returns:
            logits of tokens (B, T, V), or (N, V) for N *masked_tokens*; features (B, T, C); or the
            logits of N classes, (B, N) from a classification head or (B, T, N) from a token head.
            Also a dictionary with ``inner_states`` and the outputs of the requested ``heads``.
        """
        inputs.update(segment_labels=segment_labels, return_all_hiddens=return_all_hiddens)
        name = classification_head_name
        if name is not None:
            by_mean = self.args.pooler == "mean" and name not in self.token_heads
            by_token = by_mean or name in self.token_heads
            x, extra = self.encoder(src_tokens, True, by_token=by_token, **inputs)
            if by_mean:
                x = mean_of(x, src_tokens.ne(self.encoder.dictionary.pad()))
            return self.head(name)(x), extra
        if features_only:
            return self.encoder(src_tokens, True, **inputs)
        return self.predict(src_tokens, **inputs)

    def predict(
        self,
        src_tokens: Tensor,
        masked_tokens: Optional[Tensor] = None,
        heads: Optional[Mapping[str, Mapping[str, Any]]] = None,
        **inputs: Any,
    ) -> Tuple[Tensor, Any]:
        """Logits of the tokens, and the outputs of *heads*.

        *heads* maps the names of heads, added by :meth:`add_head`, to the inputs that they read
        besides the states.  Other arguments are those of :meth:`MaskedLMEncoder.forward`.
        """
        if not heads:
            return self.encoder(src_tokens, masked_tokens=masked_tokens, **inputs)
        if any(self.state_heads[name].reads_all for name in heads):
            inputs["return_all_hiddens"] = True
        x, extra = self.encoder(src_tokens, True, predicting=True, **inputs)
        states = [state.transpose(0, 1) for state in extra["inner_states"] or ()]  # (B, T, C)
        states[-1:] = [x]
        for name, more in heads.items():
            extra[name] = self.state_heads[name].read(self, states, **more)
        return self.encoder.output_layer(x, masked_tokens=masked_tokens), extra
