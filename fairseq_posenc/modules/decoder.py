"""fairseq's Transformer decoder, with positions and masks computed once per forward pass.

Queries are always the last T of S positions.  In a full forward pass T = S; in incremental decoding
T is the number of tokens that are not in the cache, usually one.
"""

from typing import Any, Callable, Dict, List, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from fairseq_posenc.attention.functional import additive_mask, drop
from fairseq_posenc.attention.softmax import IncrementalState
from fairseq_posenc.config.stacks import stack_of
from fairseq_posenc.loading.warm_start import State, refuse_projection
from fairseq_posenc.modules.gated_layers import GatedDecoderLayer
from fairseq_posenc.modules.layers import TransformerDecoderLayer, wrap_layer
from fairseq_posenc.modules.stack import PositionedStack, layer_positions
from fairseq_posenc.options import Options

EncoderOut = Optional[Dict[str, List[Tensor]]]
LAYERS: Dict[str, Callable[..., nn.Module]] = {
    "transformer": TransformerDecoderLayer,
    "gated": GatedDecoderLayer,
}


class TransformerDecoder(PositionedStack, TransformerDecoderBase):
    """Decoder of N layers with any position encoding (RoFormer Table 1: N = 6).

    Args:
        cfg: fairseq's nested Transformer configuration with the encodings' flags.
        dictionary: target dictionary.
        embed_tokens: target embedding.
        no_encoder_attn: leave out the attention to the source.
        output_projection: projection to the vocabulary, if not to be built here.
    """

    def __init__(
        self,
        cfg: Options,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        output_projection: Optional[nn.Module] = None,
    ) -> None:
        cfg = self.compose(cfg, stack_of(cfg, "decoder"))
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        self.own_positions(cfg)

    def build_decoder_layer(self, cfg: Options, no_encoder_attn: bool = False) -> nn.Module:
        """One layer, with activation checkpointing and FSDP as the flags select."""
        layer = LAYERS[cfg.layer](cfg, next(self.next_encoding), no_encoder_attn)
        return wrap_layer(layer, cfg)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        """Decoder states and, on request, attention weights over the source.

        Weights require an explicit softmax, so in training they are returned only if
        *alignment_layer* is given.  In evaluation those of the last layer are the default, as in
        fairseq, unless generation disables them.

        Args:
            prev_output_tokens: all target tokens so far, (B, S).
            encoder_out: output of the encoder, or None.
            incremental_state: fairseq's cache; cached tokens are not computed again.
            full_context_alignment: let every query see all target positions.
            alignment_layer: layer whose attention over the source is returned; default the last.
            alignment_heads: number of its heads to average; default all.

        Returns:
            states (B, T, C) and ``{"attn": [weights (B, T, S') or None], "inner_states": [...]}``.
        """
        seen = self.cached_length(incremental_state)
        length = prev_output_tokens.size(1)
        self.check_length(length)
        later = full_context_alignment or incremental_state is not None
        padding_mask = self._padding_mask(prev_output_tokens, later)
        x = self._embed(prev_output_tokens, seen, incremental_state).transpose(0, 1)  # (T, B, C)
        causal = not full_context_alignment
        positions = self.positions_of_layers(x, length, padding_mask, causal)
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
                need_weights=need_weights,
                **layer_positions(layer, positions),
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
        """Number of target tokens in the cache."""
        if incremental_state is None:
            return 0
        attention = next(layer.self_attn for layer in self.layers if hasattr(layer, "self_attn"))
        return attention.cached_length(incremental_state)

    def _padding_mask(self, tokens: Tensor, later: bool) -> Optional[Tensor]:
        """Padding (B, S) that a real token could see, or None if there is none.

        The causal mask already hides padding on the right, the usual kind in training.

        Args:
            tokens: (B, S).
            later: whether earlier tokens, or future ones, may see padding.
        """
        padding = tokens.eq(self.padding_idx)
        visible = padding if later else padding[:, :-1] & ~padding[:, 1:]
        return padding if visible.any() else None

    def embed(self, tokens: Tensor) -> Tensor:
        """Scaled token embeddings (B, T, E) of tokens (B, T)."""
        return self.embed_scale * self.embed_tokens(tokens)

    def _embed(self, tokens: Tensor, seen: int, incremental_state: IncrementalState) -> Tensor:
        """Input of the first layer for the tokens not *seen*, (B, T, C)."""
        new_tokens = tokens[:, seen:]
        x = self.embed(new_tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if self.embed_positions is not None:
            x = x + self._input_positions(tokens, new_tokens.size(1), incremental_state)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return drop(x, self.dropout_module)

    def _input_positions(
        self, tokens: Tensor, new: int, incremental_state: IncrementalState
    ) -> Tensor:
        """Rows of fairseq's position table for the last *new* of *tokens*, (1|B, new, C).

        fairseq's single-row look-up counts padding as text, so it is used only without padding.
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
        """Adapt an older or differently encoded checkpoint, logging changes of position state."""
        refuse_projection(self, state_dict, name)
        super().upgrade_state_dict_named(state_dict, name)
        if self.adaptive_softmax is not None and self.output_projection is None:
            # fairseq adds it wherever embeddings are tied
            state_dict.pop(f"{name}.output_projection.weight", None)
        return state_dict
