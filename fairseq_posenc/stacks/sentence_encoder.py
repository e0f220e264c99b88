"""Encoder of a masked language model: a Transformer with segments and small embeddings.

BERT, Devlin et al., arXiv 1810.04805; ALBERT, Lan et al., arXiv 1909.11942, section 3.1.
"""

import logging
from typing import Any, Dict, List, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.modules import LayerNorm
from torch import Tensor, nn

from fairseq_posenc.attention import Batch, Padding
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.stacks import masked_lm_stack
from fairseq_posenc.encodings import PositionEncoding, Stack
from fairseq_posenc.flags.options import Options
from fairseq_posenc.layers.parameters import apply_norms_and_biases
from fairseq_posenc.stacks.documents import Documents
from fairseq_posenc.stacks.encoder import Encoded, TransformerEncoder, Wanted
from fairseq_posenc.stacks.explicit import Explicit
from fairseq_posenc.stacks.first_batches import PATIENCE, FirstBatches
from fairseq_posenc.stacks.positions import prepared_for

logger = logging.getLogger(__name__)

_NO_PAIRS = (
    "no second text in the first %d batches, so only segment 0 is trained; pairs are input0 and "
    "input1 of --task sentence_prediction, or lines 'text </s> text' of --task masked_lm "
    "--sample-break-mode eos"
)


class SentenceEncoder(TransformerEncoder):
    """Transformer encoder with optional segment embeddings and embedding projection.

    Args:
        cfg: fairseq's nested Transformer configuration, with ``num_segments`` and ``causal``.
        embed_tokens: token embedding (V, E); if E is not C, a projection follows the embeddings.
    """

    began = False  # whether the first layer is built

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        size, channels = embed_tokens.embedding_dim, cfg.encoder.embed_dim
        self.embed_segments = nn.Embedding(cfg.num_segments, size) if cfg.num_segments else None
        self.num_segments = cfg.num_segments
        self.reads_pairs = cfg.segments == "pairs"
        self.global_first_text = any(kernel.reads_first_text for kernel in self.kernels())
        self.separator = dictionary.eos()
        message = f"--num-segments {cfg.num_segments}: {_NO_PAIRS}"
        patience = PATIENCE if cfg.num_segments > 1 else 0
        self.first_batches = FirstBatches(logger.info, message, patience)
        self.documents: Optional[Documents] = None
        if cfg.document_mask:
            self.documents = Documents(cfg, self.stack(cfg), dictionary)
        self.embed_project = nn.Linear(size, channels) if size != channels else None
        if cfg.encoder.normalize_before and size != channels:
            self.layer_norm: Optional[nn.Module] = LayerNorm(channels)
        apply_norms_and_biases(self, cfg)

    def stack(self, cfg: Options) -> Stack:
        """The properties of this encoder that its position encodings depend on."""
        return masked_lm_stack(cfg)

    def new_layer(self, cfg: Options, encoding: PositionEncoding) -> nn.Module:
        """One layer; under ``--skip-first-norm`` the first has no norm before its attention."""
        layer: Any = super().new_layer(cfg, encoding)
        if cfg.skip_first_norm and not self.began and self.positions.kept[0] == 0:
            layer.self_attn_layer_norm = nn.Identity()
        self.began = True
        return layer

    def embed(self, src_tokens: Tensor, segment_labels: Optional[Tensor]) -> Tensor:
        """Token plus segment embeddings (B, T, E); without labels, segments by ``--segments``."""
        x = self.embed_tokens(src_tokens)
        if self.embed_segments is None:
            return x
        if segment_labels is None and self.reads_pairs:
            segment_labels = self.segment_labels(src_tokens)
        if self.training and self.first_batches.waiting:
            self.first_batches.saw(segment_labels is not None and bool(segment_labels.any()))
        if segment_labels is None:
            return x + self.embed_segments.weight[0]
        return x + self.embed_segments(segment_labels)

    def segment_labels(self, src_tokens: Tensor) -> Tensor:
        """The segments of texts or pairs (B, T); see :func:`segment_labels`."""
        return segment_labels(src_tokens, self.padding_idx, self.separator, self.num_segments)

    def features(
        self,
        src_tokens: Tensor,
        segment_labels: Optional[Tensor],
        wanted: Wanted,
        document_starts: Optional[Tensor] = None,
    ) -> Encoded:
        """Features of a batch of texts.

        Args:
            src_tokens: (B, T), starting with [CLS].
            segment_labels: (B, T) segment of each token, or None: by ``--segments``.
            wanted: which features, and whether what is between the layers, too.
            document_starts: (B, T), True at the first token of each document, for
                ``--document-mask``; default: after the separators in *src_tokens*.
        """
        embedded = self.embed(src_tokens, segment_labels)
        packed = None
        if self.documents is not None:
            packed = self.documents.packed(src_tokens, self.training, document_starts)
        if packed is None:
            batch, _ = self.begin(src_tokens, embedded)
            return self.run_layers(batch, wanted)
        parts = []
        for group in packed.groups:
            given = (packed.texts(group), group.rows(embedded), group.padding(causal=False))
            batch, _ = self.begin(*given)
            parts.append(self.run_layers(batch, wanted))
        states = [packed.join(each) for each in zip(*(part.states for part in parts))]
        return Encoded(packed.join([part.x for part in parts]), states, [])

    def forward(self, *args: Any, **kwargs: Any) -> Dict[str, List[Tensor]]:
        """Encode a batch of texts, as in the base class.

        Raises:
            UsageError: the model has ``--document-mask``, which :meth:`features` alone supports.
        """
        if self.documents is not None:
            raise UsageError(
                "--document-mask: the stack alone does not keep documents apart; call the model, "
                "or extract_features of its encoder"
            )
        return super().forward(*args, **kwargs)

    def begin(
        self,
        src_tokens: Tensor,
        token_embeddings: Optional[Tensor] = None,
        padding: Optional[Padding] = None,
    ) -> Tuple[Batch, Tensor]:
        """As in the base class; the padding tells where the first text ends, if that matters."""
        if token_embeddings is None:
            token_embeddings = self.embed(src_tokens, None)
        batch, embedding = super().begin(src_tokens, token_embeddings, padding)
        if self.global_first_text:
            first = first_text_lengths(src_tokens, self.padding_idx, self.separator)
            batch = batch._replace(padding=batch.padding._replace(first_text=first))
        return batch, embedding

    def forward_embedding(
        self,
        src_tokens: Tensor,
        token_embedding: Optional[Tensor] = None,
        explicit: Optional[Explicit] = None,
    ) -> Tuple[Tensor, Tensor]:
        """Input of the first layer (B, T, C), and the embeddings it comes from (B, T, E)."""
        x, embedding = super().forward_embedding(src_tokens, token_embedding, explicit)
        return (x if self.embed_project is None else self.embed_project(x)), embedding


def segment_labels(tokens: Tensor, padding: int, separator: int, num_segments: int) -> Tensor:
    """The segment of each token: 0 for [CLS], the first text and its separator, 1 for the second.

    A text ends with a separator.  Adjacent separators all belong to the text before them, so both
    BERT's ``[CLS] a [SEP] b [SEP]`` and RoBERTa's ``<s> a </s> </s> b </s>`` are labelled.

    >>> import torch
    >>> segment_labels(torch.tensor([[0, 7, 8, 2, 9, 2, 1]]), 1, 2, 2)
    tensor([[0, 0, 0, 0, 1, 1, 0]])
    >>> segment_labels(torch.tensor([[0, 7, 8, 2, 2, 9, 2]]), 1, 2, 2)
    tensor([[0, 0, 0, 0, 0, 1, 1]])

    Args:
        tokens: (B, T), padded on either side.
        padding: index of the padding symbol.
        separator: index of the separator.
        num_segments: number of segments; further texts belong to the last.

    Returns:
        labels (B, T), int64; 0 for padding.
    """
    real, ends = tokens.ne(padding), tokens.eq(separator)
    begins = ends.roll(1, dims=1) & ~ends & real  # a token after a separator
    begins[:, :1] = False
    texts = begins.long().cumsum(dim=1).clamp(max=num_segments - 1)
    return texts.masked_fill(~real, 0)


def first_text_lengths(tokens: Tensor, padding: int, separator: int) -> Tensor:
    """The number of tokens of the first text of a pair, [CLS] and separators included.

    >>> import torch
    >>> first_text_lengths(torch.tensor([[0, 7, 8, 2, 9, 2, 1]]), 1, 2)
    tensor([[4]])

    Args:
        tokens: (B, T), padded on either side.
        padding: index of the padding symbol.
        separator: index of the separator.

    Returns:
        numbers (B, 1), int64; for a single text, the number of all its tokens.
    """
    first = segment_labels(tokens, padding, separator, 2).eq(0) & tokens.ne(padding)
    return first.sum(dim=1, keepdim=True)


class MaskDecodingEncoder(SentenceEncoder):
    """Encoder of a masked language model whose last layer decodes the masked tokens.

    DeBERTa's enhanced mask decoder, He, Liu, Gao, Chen, arXiv 2006.03654, section 3.2, and the
    released code: absolute positions enter where masked tokens are predicted.  The last of L layers
    is the decoder.  With H, the output of layer L - 1, and a table P of absolute positions, it is
    applied n times,

        I_1 = H + P,    I_{m+1} = Layer_L(Q = I_m, K = V = H),

    and I_{n+1} is what the head predicts masked tokens from.  (The paper says I_1 = P; the released
    code adds H, without which n = 1 would not be BERT for P = 0.)  Fine-tuning has the L layers
    alone.

    Args:
        cfg: fairseq's nested Transformer configuration, with ``mask_decoder_layers``.
        embed_tokens: token embedding (V, E).
    """

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.times = int(cfg.mask_decoder_layers)
        self.embed_mask_positions = nn.Embedding(cfg.num_positions, cfg.encoder.embed_dim)

    def run_layers(self, batch: Batch, wanted: Wanted) -> Encoded:
        """Apply the layers and the last norm.

        Args:
            batch: the batch, with the input of the first layer, (B, T, C).
            wanted: with ``by_mask`` the result is I_{n+1} of the decoder, else the output of
                layer L.

        Raises:
            UsageError: the texts are longer than the table P.
        """
        if not wanted.by_mask:
            return super().run_layers(batch, wanted)
        x, prepared = batch.like, self.positions.prepare(batch)
        *layers, last = self.layers
        states = [x]
        for layer in layers:
            x = layer(x, **prepared_for(layer, prepared))
            states.append(x)
        x, below = x + self._absolute(batch), x
        decoder: Any = last
        for _ in range(self.times):
            x = decoder(x, keys=below, **prepared_for(decoder, prepared))
            states.append(x)
        x = x if self.layer_norm is None else self.layer_norm(x)
        return Encoded(x, states if wanted.states else [], [])

    def _absolute(self, batch: Batch) -> Tensor:
        """The rows of P for every token, (1|B, T, C)."""
        length, rows = batch.length, self.embed_mask_positions.num_embeddings
        if length > rows:
            raise UsageError(
                f"a text has {length} tokens, but --mask-decoder-layers has a table of {rows} "
                "positions; give shorter texts, or train with more --num-positions"
            )
        return self.embed_mask_positions(batch.places(relative=False).keys)
