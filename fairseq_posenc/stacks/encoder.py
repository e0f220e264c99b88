"""fairseq's Transformer encoder, with positions and masks computed once per forward pass."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from fairseq_posenc.attention import Batch, Padding
from fairseq_posenc.attention.batch import read_padding
from fairseq_posenc.attention.functional import drop
from fairseq_posenc.configuration.stacks import stack_of
from fairseq_posenc.encodings import PositionEncoding, Stack
from fairseq_posenc.flags.options import Options
from fairseq_posenc.layers.kinds import LAYERS
from fairseq_posenc.layers.transformer import wrap_layer
from fairseq_posenc.stacks.explicit import Explicit
from fairseq_posenc.stacks.positioned import PositionedStack
from fairseq_posenc.stacks.positions import prepared_for


class Wanted(NamedTuple):
    """What is wanted of the layers of an encoder."""

    states: bool = False  # what is between the layers, too
    # the features of all tokens, or only of [CLS], for which a Funnel encoder computes less
    by_token: bool = True
    # features from which masked tokens are predicted, which an enhanced mask decoder makes
    by_mask: bool = False


class Encoded(NamedTuple):
    """What the layers of an encoder make of a batch."""

    x: Tensor  # output of the last layer, normalised if the model has a last norm, (B, S, C)
    # input of every layer, and the last output before that norm, (B, S, C) each, if they were asked
    # for
    states: List[Tensor]
    fc_results: List[Any]  # feed-forward outputs of the layers, or None for each, likewise


class TransformerEncoder(PositionedStack, TransformerEncoderBase):
    """Encoder of N layers with any position encoding (Vaswani et al. 2017, section 3.1).

    Args:
        cfg: fairseq's nested Transformer configuration with the encodings' flags.
        dictionary: source dictionary.
        embed_tokens: source embedding.
        return_fc: also return every layer's feed-forward output.
    """

    def __init__(
        self,
        cfg: Options,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        return_fc: bool = False,
    ) -> None:
        cfg = self.compose(cfg, self.stack(cfg), dictionary)
        super().__init__(cfg, dictionary, embed_tokens, return_fc)
        self.own_positions(cfg)

    def stack(self, cfg: Options) -> Stack:
        """The properties of this encoder that its position encodings depend on."""
        return stack_of(cfg, "encoder")

    def build_encoder_layer(self, cfg: Options) -> nn.Module:
        """One layer, with activation checkpointing and FSDP as the flags select."""
        encoding = next(self.positions.next_encoding)
        return wrap_layer(self.new_layer(cfg, encoding), cfg)

    def new_layer(self, cfg: Options, encoding: PositionEncoding) -> nn.Module:
        """One layer with a position encoding."""
        return LAYERS[cfg.layer].encoder(cfg, encoding, self.return_fc)

    def forward_embedding(
        self,
        src_tokens: Tensor,
        token_embedding: Optional[Tensor] = None,
        explicit: Optional[Explicit] = None,
    ) -> Tuple[Tensor, Tensor]:
        """Input of the first layer (B, T, C), and the scaled token embeddings (B, T, C).

        Args:
            src_tokens: (B, T).
            token_embedding: (B, T, C), used instead of the embeddings of *src_tokens*.
            explicit: positions in place of those that are counted.
        """
        if token_embedding is None:
            token_embedding = self.embed_tokens(src_tokens)
        x = embedding = self.embed_scale * token_embedding
        if self.embed_positions is not None:
            x = x + self.added_positions(src_tokens, explicit)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = drop(x, self.dropout_module)
        return (x if self.quant_noise is None else self.quant_noise(x)), embedding

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
        padding: Optional[Padding] = None,
    ) -> Dict[str, List[Tensor]]:
        """Encode a batch; same arguments and result as fairseq's encoder.

        Args:
            src_tokens: (B, T), padded on either side.
            src_lengths: unused, as in fairseq.
            return_all_hiddens: also return the input of every layer and the last output.
            token_embeddings: (B, T, C), used instead of the embeddings of *src_tokens*.
            padding: the padding of *src_tokens*, if it is known already.

        Returns:
            fairseq's dictionary of lists: encoder_out (T, B, C), encoder_padding_mask (B, T), none
            without padding, encoder_embedding (B, T, C), encoder_states, fc_results, src_tokens,
            src_lengths (B, 1).
        """
        batch, embedding = self.begin(src_tokens, token_embeddings, padding)
        encoded = self.run_layers(batch, Wanted(states=return_all_hiddens))
        mask = batch.padding.mask
        lengths = src_tokens.ne(self.padding_idx).sum(dim=1, dtype=torch.int32).unsqueeze(1)
        # (B, T, C) -> (T, B, C), as in fairseq
        return {
            "encoder_out": [encoded.x.transpose(0, 1)],
            "encoder_padding_mask": [] if mask is None else [mask],
            "encoder_embedding": [embedding],
            "encoder_states": [state.transpose(0, 1) for state in encoded.states],
            "fc_results": encoded.fc_results,
            "src_tokens": [],
            "src_lengths": [lengths],
        }

    forward_scriptable = forward

    def reorder_encoder_out(
        self, encoder_out: Dict[str, List[Tensor]], new_order: Tensor
    ) -> Dict[str, List[Tensor]]:
        """The result of :meth:`forward` with row ``new_order[i]`` in place of row i.

        A search calls this at every token, so what no decoder reads is left out: the embeddings and
        the lengths.
        """
        read = {**encoder_out, "encoder_embedding": [], "src_lengths": []}
        return super().reorder_encoder_out(read, new_order)

    def begin(
        self,
        src_tokens: Tensor,
        token_embeddings: Optional[Tensor] = None,
        padding: Optional[Padding] = None,
    ) -> Tuple[Batch, Tensor]:
        """The batch, with the input of the first layer, zero at padding; and the embeddings.

        Args:
            src_tokens: (B, T).
            token_embeddings: (B, T, C), used instead of the embeddings of *src_tokens*.
            padding: the padding of *src_tokens*, if it is known already.

        Raises:
            UsageError: the sequences are longer than a table of positions.
        """
        if padding is None:
            padding = read_padding((src_tokens.eq(self.padding_idx), False))[0]
        self.positions.check_length(src_tokens.size(1))
        explicit = self.positions.given(padding, src_tokens, self.training)
        x, embedding = self.forward_embedding(src_tokens, token_embeddings, explicit)
        if padding.mask is not None:
            x = x.masked_fill(padding.mask.unsqueeze(-1), 0.0)
        given = None if explicit is None else explicit.places
        causal = self.positions.causal
        return Batch(x, x.size(1), padding, causal, given=given), embedding

    def run_layers(self, batch: Batch, wanted: Wanted) -> Encoded:
        """Apply the layers and the last norm.

        Args:
            batch: the batch, with the input of the first layer, (B, T, C).
            wanted: only whether the states are wanted is read here.
        """
        x, prepared = batch.like, self.positions.prepare(batch)
        states, fc_results = [x] if wanted.states else [], []
        for layer in self.layers:
            x = layer(x, **prepared_for(layer, prepared))
            x, fc_result = x if self.return_fc else (x, None)
            if wanted.states:
                states.append(x)
                fc_results.append(fc_result)
        return Encoded(x if self.layer_norm is None else self.layer_norm(x), states, fc_results)
