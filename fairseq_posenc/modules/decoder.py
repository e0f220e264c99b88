"""Transformer decoder: fairseq's, with positions and masks worked out once per forward.

Queries are always the last T of S positions.  In a full forward T = S; in incremental decoding T is
however many tokens the cache has not seen, usually one.
"""

from typing import Any, Callable, Dict, List, Optional, Tuple

from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from fairseq_posenc.attention.choice import ATTENTIONS
from fairseq_posenc.attention.feature_maps import number_random_features
from fairseq_posenc.attention.functional import add_terms, additive_mask
from fairseq_posenc.attention.multihead import IncrementalState
from fairseq_posenc.config import stack_of
from fairseq_posenc.encodings import build_encoding
from fairseq_posenc.modules.gated import GatedDecoderLayer
from fairseq_posenc.modules.layers import TransformerDecoderLayer, wrap_layer
from fairseq_posenc.modules.simple import simplify
from fairseq_posenc.modules.warm_start import State, adapt_positions, refuse_projection

EncoderOut = Optional[Dict[str, List[Tensor]]]
LAYERS: Dict[str, Callable[..., nn.Module]] = {
    "transformer": TransformerDecoderLayer,
    "gated": GatedDecoderLayer,
}


class TransformerDecoder(TransformerDecoderBase):
    """Decoder of N layers with any position encoding (RoFormer Table 1: N = 6).

    Args:
        cfg: fairseq's nested Transformer configuration with the encodings' flags.
        dictionary: target dictionary.
        embed_tokens: target embedding.
        no_encoder_attn: leave out the attention to the source.
        output_projection: projection to the vocabulary, if not to be built here.
    """

    refuse_other_positions = ""  # what would work, if a checkpoint's position state has to fit

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        output_projection: Optional[nn.Module] = None,
    ) -> None:
        self.encoding = build_encoding(cfg, stack_of(cfg, "decoder"))  # read by build_decoder_layer
        self.masks = ATTENTIONS[cfg.attention].masks
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        self.position_bias = self.encoding.build_shared()
        self.position_map = self.encoding.query_key
        self.position_vectors = self.encoding.build_distances()
        number_random_features(self)
        simplify(self, cfg)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        """One layer, checkpointed and sharded as the flags ask."""
        return wrap_layer(LAYERS[cfg.layer](cfg, self.encoding, no_encoder_attn), cfg)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        """Decoder states and, where asked for, attention over the source.

        Attention weights cost an explicit softmax, so in training they are returned only if
        *alignment_layer* is given; in evaluation also for the last layer, as fairseq does, unless
        generation was told not to need them.

        Args:
            prev_output_tokens: all target tokens so far, (B, S).
            encoder_out: what the encoder returned, or None.
            incremental_state: fairseq's cache; tokens it has seen are not computed again.
            full_context_alignment: let every query see all target positions.
            alignment_layer: layer whose attention over the source is returned; default the last.
            alignment_heads: how many of its heads are averaged; default all.

        Returns:
            states (B, T, C) and ``{"attn": [weights (B, T, S') or None], "inner_states": [...]}``.
        """
        seen = self.cached_length(incremental_state)
        length = prev_output_tokens.size(1)
        later = full_context_alignment or incremental_state is not None
        padding_mask = self._padding_mask(prev_output_tokens, later)
        key_positions = self.encoding.positions(length, padding_mask, prev_output_tokens.device)
        query_positions = key_positions[:, seen:]

        x = self._embed(prev_output_tokens, seen, incremental_state).transpose(0, 1)  # (T, B, C)
        table = self.encoding.table(query_positions)
        shared = self.encoding.shared_bias(self.position_bias, query_positions, key_positions, x)
        more = shared is not None or bool(self.encoding.layer)
        causal = not full_context_alignment
        bias, causal = self.masks(x.size(0), length, causal, padding_mask, more, x)
        bias = add_terms(bias, shared)
        positions = (query_positions, key_positions) if self.encoding.layer else (None, None)
        vectors = self.encoding.distance_vectors(self.position_vectors, x.size(0), length, x)
        source, source_bias = self._source(encoder_out, x)

        asked = alignment_layer is not None or not self.training
        alignment_layer = self.num_layers - 1 if alignment_layer is None else alignment_layer
        attn: Optional[Tensor] = None
        inner_states: List[Optional[Tensor]] = [x]
        for index, layer in enumerate(self.layers):
            need_weights = asked and index == alignment_layer and getattr(layer, "need_attn", False)
            x, weights, _ = layer(
                x,
                source,
                source_bias,
                incremental_state,
                bias=bias,
                causal=causal,
                table=table,
                query_positions=positions[0],
                key_positions=positions[1],
                distance_vectors=vectors,
                need_weights=need_weights,
            )
            inner_states.append(x)
            if need_weights and weights is not None:
                attn = weights[:, :alignment_heads].float().mean(dim=1).type_as(x)  # (B, T, S')
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)  # (T, B, C) -> (B, T, C)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, {"attn": [attn], "inner_states": inner_states}

    def cached_length(self, incremental_state: IncrementalState) -> int:
        """How many target tokens the cache has seen."""
        if incremental_state is None:
            return 0
        attention = next(layer.self_attn for layer in self.layers if hasattr(layer, "self_attn"))
        return attention.cached_length(incremental_state)

    def _padding_mask(self, tokens: Tensor, later: bool) -> Optional[Tensor]:
        """Padding (B, S) that a real token could see, or None if there is none.

        Causality hides padding on the right, the usual kind in training, at no cost.

        Args:
            tokens: (B, S).
            later: whether padding is seen by tokens before it, or by some that are yet to come.
        """
        padding = tokens.eq(self.padding_idx)
        visible = padding if later else padding[:, :-1] & ~padding[:, 1:]
        return padding if visible.any() else None

    def _embed(self, tokens: Tensor, seen: int, incremental_state: IncrementalState) -> Tensor:
        """Input of the first layer for the tokens not *seen*, (B, T, C)."""
        new_tokens = tokens[:, seen:]
        x = self.embed_scale * self.embed_tokens(new_tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if self.embed_positions is not None:
            x = x + self._input_positions(tokens, new_tokens.size(1), incremental_state)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def _input_positions(
        self, tokens: Tensor, new: int, incremental_state: IncrementalState
    ) -> Tensor:
        """Rows of fairseq's position table for the last *new* of *tokens*, (1|B, new, C).

        fairseq's own one-row look-up counts padding as text, so it serves only without padding.
        """
        one_row = incremental_state is not None and new == 1
        if one_row and not tokens.eq(self.padding_idx).any():
            return self.embed_positions(tokens, incremental_state=incremental_state)
        return self.embed_positions(tokens)[:, -new:]

    def _source(self, encoder_out: EncoderOut, like: Tensor) -> Tuple[Any, Any]:
        """Encoder states (S', B, C) and their padding as an additive mask (B, 1, 1, S')."""
        if encoder_out is None or not encoder_out["encoder_out"]:
            return None, None
        states = encoder_out["encoder_out"][0]
        masks = encoder_out["encoder_padding_mask"]
        padding_mask = masks[0] if masks and masks[0].any() else None
        return states, additive_mask(1, states.size(0), False, padding_mask, like)

    def upgrade_state_dict_named(self, state_dict: State, name: str) -> State:
        """Fit an older or differently encoded checkpoint, listing what position state changes."""
        super().upgrade_state_dict_named(state_dict, name)
        refuse_projection(self, state_dict, name)
        adapt_positions(self, state_dict, name)
        return state_dict
