"""fairseq's Transformer encoder, with positions and masks computed once per forward pass."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from fairseq_posenc.attention.functional import drop
from fairseq_posenc.configuration.stacks import stack_of
from fairseq_posenc.encodings import Stack
from fairseq_posenc.flags.options import Options
from fairseq_posenc.layers.gated import GatedEncoderLayer
from fairseq_posenc.layers.transformer import TransformerEncoderLayer, wrap_layer
from fairseq_posenc.stacks.stack import (
    Padding,
    PositionedStack,
    find_padding,
    layer_positions,
)

LAYERS: Dict[str, Callable[..., nn.Module]] = {
    "transformer": TransformerEncoderLayer,
    "gated": GatedEncoderLayer,
}


class TransformerEncoder(PositionedStack, TransformerEncoderBase):
    """Encoder of N layers with any position encoding (RoFormer Table 1: N = 6).

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
        cfg = self.compose(cfg, self.stack(cfg))
        super().__init__(cfg, dictionary, embed_tokens, return_fc)
        self.own_positions(cfg)

    def stack(self, cfg: Options) -> Stack:
        """The properties of this encoder that its position encodings depend on."""
        return stack_of(cfg, "encoder")

    def build_encoder_layer(self, cfg: Options) -> nn.Module:
        """One layer, with activation checkpointing and FSDP as the flags select."""
        return wrap_layer(LAYERS[cfg.layer](cfg, next(self.next_encoding), self.return_fc), cfg)

    def forward_embedding(
        self, src_tokens: Tensor, token_embedding: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tensor]:
        """Input of the first layer (B, T, C), and the scaled token embeddings (B, T, C)."""
        if token_embedding is None:
            token_embedding = self.embed_tokens(src_tokens)
        x = embedding = self.embed_scale * token_embedding
        if self.embed_positions is not None:
            x = x + self.embed_positions(src_tokens)
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
            padding: that of *src_tokens*, if it is known already.

        Returns:
            fairseq's dictionary of lists: encoder_out (T, B, C), encoder_padding_mask (B, T), none
            without padding, encoder_embedding (B, T, C), encoder_states, fc_results, src_tokens,
            src_lengths (B, 1).
        """
        x, embedding, padding = self.begin(src_tokens, token_embeddings, padding)
        positions = self.positions_of_layers(x, src_tokens.size(1), padding, self.causal)

        states = [x.transpose(0, 1)] if return_all_hiddens else []  # (T, B, C), as in fairseq
        fc_results: List[Any] = []
        for layer in self.layers:
            x = layer(x, **layer_positions(layer, positions))
            x, fc_result = x if self.return_fc else (x, None)
            if return_all_hiddens:
                states.append(x.transpose(0, 1))
                fc_results.append(fc_result)
        return self.finish(src_tokens, x, padding.mask, embedding, states, fc_results)

    forward_scriptable = forward

    def begin(
        self, src_tokens: Tensor, token_embeddings: Optional[Tensor], padding: Optional[Padding]
    ) -> Tuple[Tensor, Tensor, Padding]:
        """Input of the first layer (B, T, C), zero at padding; the embeddings; and the padding.

        Args:
            src_tokens: (B, T).
            token_embeddings: (B, T, C), used instead of the embeddings of *src_tokens*.
            padding: that of *src_tokens*, if it is known already.

        Raises:
            UsageError: the sequences are longer than a table of positions.
        """
        if padding is None:
            padding = find_padding((src_tokens.eq(self.padding_idx), False))[0]
        self.check_length(src_tokens.size(1))
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        if padding.mask is not None:
            x = x.masked_fill(padding.mask.unsqueeze(-1), 0.0)
        return x, embedding, padding

    def finish(
        self,
        src_tokens: Tensor,
        x: Tensor,
        mask: Optional[Tensor],
        embedding: Tensor,
        states: Sequence[Tensor] = (),
        fc_results: Sequence[Any] = (),
    ) -> Dict[str, List[Tensor]]:
        """fairseq's result of an encoder, see :meth:`forward`.

        Args:
            src_tokens: (B, T).
            x: output of the last layer, (B, S, C).
            mask: padding of *x*, (B, S), or None.
            embedding: (B, T, C).
            states: what to return of the states between layers, (S, B, C) each.
            fc_results: feed-forward outputs of the layers.
        """
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        lengths = src_tokens.ne(self.padding_idx).sum(dim=1, dtype=torch.int32).unsqueeze(1)
        return {
            "encoder_out": [x.transpose(0, 1)],  # (B, S, C) -> (S, B, C), as in fairseq
            "encoder_padding_mask": [] if mask is None else [mask],
            "encoder_embedding": [embedding],
            "encoder_states": list(states),
            "fc_results": list(fc_results),
            "src_tokens": [],
            "src_lengths": [lengths],
        }
