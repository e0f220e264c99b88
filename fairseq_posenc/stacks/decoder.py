"""fairseq's Transformer decoder, with positions and masks computed once per forward pass.

Queries are always the last T of S positions.  In a full forward pass T = S; in incremental decoding
T is the number of tokens that are not in the cache yet, usually one.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from fairseq_posenc.attention import Batch, Padding
from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.attention.functional import additive_mask, aligned, drop, product_dtype
from fairseq_posenc.checkpoints.warm_start import State
from fairseq_posenc.configuration.features import stack_of
from fairseq_posenc.flags.options import Layer, Options
from fairseq_posenc.layers import LAYERS
from fairseq_posenc.layers.transformer import wrap_layer
from fairseq_posenc.stacks.positions import Assigned, PositionedStack, read_padding

CacheState = Dict[str, Any]
#: The layer whose cross-attention to return, or None; the number of heads to average (None: all).
Weights = Tuple[Optional[int], Optional[int]]
EncoderOut = Optional[Dict[str, List[Tensor]]]
#: The key under which the incremental state holds the padding of all tokens so far.
_PADDING = "padding"


class Steps(nn.Module):
    """Computes the steps of incremental decoding in place of a decoder's layers.

    It is a submodule of the decoder, so ``train``, ``half`` and the like reach it.  Its method
    ``reorder_incremental_state(incremental_state, new_order)`` reorders its cache, as in fairseq.
    """

    def cached_length(self, state: CacheState) -> Optional[int]:
        """Number of tokens in the cache, or None if the layers hold the cache."""
        raise NotImplementedError

    def step(
        self,
        decoder: Layer,
        tokens: Tensor,
        seen: int,
        padding: Padding,
        assigned: Optional[Assigned],
        encoder_out: Any,
        state: CacheState,
        weights: Weights,
    ) -> Optional[Tuple[Tensor, Optional[Tensor]]]:
        """Compute a step, or return None to leave the step to the layers.

        *tokens* (B, S) are all target tokens so far; the first *seen* of them are in the cache.
        For *weights*, see ``apply_layers``.

        Returns:
            states (B, 1, C), and cross-attention weights (B, 1, S') or None.
        """
        raise NotImplementedError


#: Functions that make :class:`Steps` for a decoder, or return None if their flag is not given.
STEPS: List[Callable[[Options, Layer], Optional[Steps]]] = []


class TransformerDecoder(PositionedStack, TransformerDecoderBase):
    """Decoder of N layers with any position encoding (Vaswani et al. 2017, section 3.1)."""

    def __init__(
        self,
        cfg: Options,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        output_projection: Optional[nn.Module] = None,
    ) -> None:
        cfg = self.compose(cfg, stack_of(cfg, "decoder"), dictionary)
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        self.register_positions(cfg)
        steps = (make(cfg, self) for make in STEPS)
        self.steps = next((each for each in steps if each is not None), None)

    def build_decoder_layer(self, cfg: Options, no_encoder_attn: bool = False) -> nn.Module:
        """One layer, with activation checkpointing and FSDP as the flags select."""
        encoding = next(self.next_encoding)
        layer = LAYERS[cfg.layer]["decoder"](cfg, encoding, no_encoder_attn)
        return wrap_layer(layer, cfg)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut = None,
        incremental_state: IncrementalState = None,
        features_only: bool = False,
        *,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        **further: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Logits of the next tokens (B, T, V), or states (B, T, C) if *features_only*.

        Other arguments, and the dictionary returned, are as in :meth:`extract_features_scriptable`;
        *src_lengths* and *return_all_hiddens* are unused, as in fairseq.
        """
        x, extra = self.extract_features_scriptable(
            prev_output_tokens, encoder_out, incremental_state, **further
        )
        return (x if features_only else self.output_layer(x)), extra

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
        padding: Optional[Padding] = None,
        earlier: Sequence[Tensor] = (),
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Decoder states and, on request, attention weights over the source.

        Attention weights require an explicit softmax, so in training they are returned only if
        *alignment_layer* is given.  In evaluation the last layer returns them by default, as in
        fairseq, unless ``make_generation_fast_`` has disabled that.

        Args:
            prev_output_tokens: all target tokens so far, (B, S).
            encoder_out: output of the encoder, or None.
            incremental_state: fairseq's cache; cached tokens are not computed again.
            full_context_alignment: let every query see all target positions.
            alignment_layer: layer whose cross-attention is returned, by default as stated above.
            alignment_heads: number of this layer's heads to average, by default all.
            padding: the padding of *prev_output_tokens*, if known.
            earlier: for each layer, its input (B, M, C) for the M tokens before
                *prev_output_tokens*, to which the layer also attends; only without a cache.

        Returns:
            states (B, T, C) and ``{"attn": [weights (B, T, S') or None], "inner_states": [...]}``.
        """
        seen = 0 if incremental_state is None else self.cached_length(incremental_state)
        before = earlier[0].size(1) if earlier else 0
        length = before + prev_output_tokens.size(1)
        causal = not full_context_alignment
        if incremental_state is not None:
            padding = self._padding_so_far(prev_output_tokens, seen, incremental_state)
            if self.assigner is not None:
                self.assigner.refuse_cache()
        elif padding is None:
            padding = read_padding((prev_output_tokens.eq(self.padding_idx), causal))[0]
        assigned = self.assigned(padding, prev_output_tokens, before)
        if alignment_layer is None and not self.training:
            alignment_layer = self.num_layers - 1
        weights = (alignment_layer, alignment_heads)
        if incremental_state is not None and self.steps is not None:
            step = (prev_output_tokens, seen, padding, assigned, encoder_out)
            done = self.steps.step(self, *step, incremental_state, weights)
            if done is not None:
                return done[0], {"attn": [done[1]], "inner_states": [done[0].transpose(0, 1)]}
        x = self.embed_new(prev_output_tokens, seen, incremental_state, padding, assigned)
        padding = padding.after(before) if before else padding
        places = None if assigned is None else assigned.places
        batch = Batch(x, length, padding, causal, length if before else None, places)
        source = self.source_of(encoder_out, x)
        x, attn, inner_states = self.apply_layers(
            batch, source, incremental_state, weights, earlier
        )
        return x, {"attn": [attn], "inner_states": inner_states}

    def apply_layers(
        self,
        batch: Batch,
        source: Tuple[Any, Any],
        incremental_state: IncrementalState,
        weights: Weights,
        earlier: Sequence[Tensor] = (),
    ) -> Tuple[Tensor, Optional[Tensor], List[Tensor]]:
        """Apply the layers, and the final norm and the final projection if there are any.

        Args:
            batch: the batch, with the input of the first layer for the new tokens, (B, T, C).
            source: the result of :meth:`source_of`.
            weights: a pair.  First, the index of the layer whose cross-attention is returned (if
                generation has not disabled this), or None.  Second, how many of its heads to
                average, or None for all.
            earlier: as for :meth:`extract_features_scriptable`.

        Returns:
            states (B, T, C), cross-attention (B, T, S') or None, states between layers (T, B, C).
        """
        x, prepared = batch.like, self.prepare(batch)
        asked, heads = weights
        attn: Optional[Tensor] = None
        inner_states: List[Tensor] = [x.transpose(0, 1)]  # (T, B, C), as in fairseq
        for index, layer in enumerate(self.layers):
            need_weights = index == asked and getattr(layer, "need_attn", False)
            x, of_heads, _ = layer(
                x,
                *source,
                incremental_state,
                need_weights=need_weights,
                earlier=earlier[index].to(x) if earlier else None,
                **(prepared[layer.self_attn.kind] if hasattr(layer, "encoding") else {}),
            )
            inner_states.append(x.transpose(0, 1))
            if need_weights and of_heads is not None:
                attn = of_heads[:, :heads].float().mean(dim=1).type_as(x)  # (B, T, S')
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, attn, inner_states

    def cached_length(self, incremental_state: IncrementalState) -> int:
        """Number of target tokens in the cache."""
        length = None if self.steps is None else self.steps.cached_length(incremental_state or {})
        if length is not None:
            return length
        attentions = (each.self_attn for each in self.layers if hasattr(each, "self_attn"))
        attention = next(attentions, None)  # a decoder without layers reads all tokens again
        return 0 if attention is None else attention.cached_length(incremental_state)

    def _padding_so_far(
        self, tokens: Tensor, seen: int, incremental_state: IncrementalState
    ) -> Padding:
        """The padding of *tokens* (B, S), of which *seen* are in the cache.

        Prompts may have padding, but the single tokens of a beam search have none.  Hence padding
        is read from the device only at the first step, and later if there are several new tokens.
        """
        state: Any = incremental_state
        if _PADDING in state and tokens.size(1) == seen + 1:
            visible, left, empty = state[_PADDING]
            return Padding(tokens.eq(self.padding_idx), left, empty) if visible else Padding()
        padding = read_padding((tokens.eq(self.padding_idx), False))[0]
        state[_PADDING] = (padding.mask is not None, padding.left, padding.empty)
        return padding

    def embed(self, tokens: Tensor) -> Tensor:
        """Scaled token embeddings (B, T, E) of tokens (B, T)."""
        return self.embed_scale * self.embed_tokens(tokens)

    def embed_new(
        self,
        tokens: Tensor,
        seen: int,
        incremental_state: IncrementalState,
        padding: Padding,
        assigned: Optional[Assigned],
    ) -> Tensor:
        """The input (B, T, C) of the first layer for the *tokens* after the first *seen*."""
        new_tokens = tokens[:, seen:]
        x = self.embed(new_tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if self.embed_positions is not None:
            one_row = incremental_state is not None and tokens.size(1) == seen + 1
            counted = padding.mask is None and assigned is None
            if one_row and counted:  # fairseq's lookup of a single position counts padding as text
                x = x + self.embed_positions(tokens, incremental_state=incremental_state)
            else:
                x = x + self.added_positions(tokens, assigned)[:, seen:]
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return drop(x, self.dropout_module)

    def source_of(self, encoder_out: EncoderOut, like: Tensor) -> Tuple[Any, Any]:
        """Encoder states (B, S', C) and their padding as an additive mask (B, 1, 1, S')."""
        if encoder_out is None or not encoder_out["encoder_out"]:
            return None, None
        states = encoder_out["encoder_out"][0].transpose(0, 1)
        if not encoder_out["encoder_padding_mask"]:
            return states, None
        mask = encoder_out["encoder_padding_mask"][0]
        bias: Any = additive_mask(1, states.size(1), False, mask, like)
        return states, aligned(bias.to(product_dtype(like)))

    def upgrade_state_dict_named(self, state_dict: State, name: str) -> State:
        """Adapt a checkpoint that is older or has a different encoding, as in the base class."""
        super().upgrade_state_dict_named(state_dict, name)
        if self.adaptive_softmax is not None and self.output_projection is None:
            # fairseq adds this weight wherever embeddings are tied
            state_dict.pop(f"{name}.output_projection.weight", None)
        return state_dict
