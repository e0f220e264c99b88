"""fairseq's Transformer encoder, with positions and masks computed once per forward pass."""

from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from fairseq_posenc.attention import Batch, Padding
from fairseq_posenc.attention.functional import drop
from fairseq_posenc.configuration.features import stack_of
from fairseq_posenc.encodings import PositionEncoding, Stack
from fairseq_posenc.flags.options import Options
from fairseq_posenc.layers import LAYERS
from fairseq_posenc.layers.transformer import wrap_layer
from fairseq_posenc.stacks.positions import PositionedStack, read_padding


class Requested(NamedTuple):
    """What a caller requests from the layers of an encoder."""

    states: bool = False  # whether to return the states between layers as well
    # whether the features of all tokens are needed; if not, a stack may compute only [CLS]'s
    by_token: bool = True
    # whether features will predict masked tokens; a stack may compute such features differently
    predicting: bool = False


class Encoded(NamedTuple):
    """The outputs of an encoder."""

    x: Tensor  # output of the last layer, normalised if the model has a final norm, (B, S, C)
    # if requested, the input of each layer, and the last layer's output before the final norm; each
    # is (S, B, C), as in fairseq
    states: List[Tensor]


class TransformerEncoder(PositionedStack, TransformerEncoderBase):
    """Encoder of N layers with any position encoding (Vaswani et al. 2017, section 3.1)."""

    #: returns the lengths (B, 1) of the first texts of pairs; None unless attention needs them
    first_texts: Optional[Callable[[Tensor], Tensor]] = None

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        cfg = self.compose(cfg, self.stack(cfg), dictionary)
        super().__init__(cfg, dictionary, embed_tokens)
        #: projects embeddings of a size other than C
        self.embed_project: Optional[nn.Module] = None
        self.register_positions(cfg)

    def stack(self, cfg: Options) -> Stack:
        """The properties of this encoder that its position encodings depend on."""
        return stack_of(cfg, "encoder")

    def build_encoder_layer(self, cfg: Options) -> nn.Module:
        """One layer, with activation checkpointing and FSDP as the flags select."""
        encoding = next(self.next_encoding)
        return wrap_layer(self.new_layer(cfg, encoding), cfg)

    def new_layer(self, cfg: Options, encoding: PositionEncoding) -> nn.Module:
        """One layer with a position encoding."""
        return LAYERS[cfg.layer]["encoder"](cfg, encoding)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
        padding: Optional[Padding] = None,
    ) -> Dict[str, List[Tensor]]:
        """Encode a batch, with the arguments and the result of fairseq's encoder.

        *src_tokens* (B, T) may be padded on either side; *token_embeddings* (B, T, C) replace their
        embeddings; *return_all_hiddens* adds the input of every layer and the output of the last.

        Returns:
            lists by key: encoder_out (T, B, C), encoder_padding_mask (B, T) if there is padding,
            encoder_embedding (B, T, C), encoder_states, src_lengths (B, 1), and two empty lists.
        """
        batch, embedding = self.begin(src_tokens, token_embeddings, padding)
        encoded = self.run_layers(batch, Requested(states=return_all_hiddens))
        mask = batch.padding.mask
        lengths = src_tokens.ne(self.padding_idx).sum(dim=1, dtype=torch.int32).unsqueeze(1)
        # (B, T, C) -> (T, B, C), as in fairseq
        return {
            "encoder_out": [encoded.x.transpose(0, 1)],
            "encoder_padding_mask": [] if mask is None else [mask],
            "encoder_embedding": [embedding],
            "encoder_states": encoded.states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [lengths],
        }

    forward_scriptable = forward

    def reorder_encoder_out(
        self, encoder_out: Dict[str, List[Tensor]], new_order: Tensor
    ) -> Dict[str, List[Tensor]]:
        """The result of :meth:`forward` with row ``new_order[i]`` in place of row i.

        Beam search calls this at every token, so embeddings and lengths, which no decoder reads,
        are left out of the result.
        """
        read = {**encoder_out, "encoder_embedding": [], "src_lengths": []}
        return super().reorder_encoder_out(read, new_order)

    def begin(
        self,
        src_tokens: Tensor,
        token_embeddings: Optional[Tensor] = None,
        padding: Optional[Padding] = None,
    ) -> Tuple[Batch, Tensor]:
        """The batch, with the first layer's input, which is 0 at padding; and the embeddings.

        The arguments are those of :meth:`forward`.
        """
        if padding is None:
            padding = read_padding((src_tokens.eq(self.padding_idx), False))[0]
        assigned = self.assigned(padding, src_tokens)
        if self.first_texts is not None:
            padding = padding._replace(first_text=self.first_texts(src_tokens))
        if token_embeddings is None:
            token_embeddings = self.embed_tokens(src_tokens)
        x = embedding = self.embed_scale * token_embeddings
        if self.embed_positions is not None:
            x = x + self.added_positions(src_tokens, assigned)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        x = drop(x, self.dropout_module)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.embed_project is not None:
            x = self.embed_project(x)
        if padding.mask is not None:
            x = x.masked_fill(padding.mask.unsqueeze(-1), 0.0)
        places = None if assigned is None else assigned.places
        causal = self.encoding.stack.causal
        return Batch(x, x.size(1), padding, causal, assigned=places), embedding

    def run_layers(self, batch: Batch, requested: Requested) -> Encoded:
        """Apply the layers and the final norm to *batch*, which has the first layer's input."""
        x, prepared = batch.like, self.prepare(batch)
        states = [x.transpose(0, 1)] if requested.states else []
        for layer in self.layers:
            x = layer(x, **prepared[layer.self_attn.kind])
            if requested.states:
                states.append(x.transpose(0, 1))
        return Encoded(x if self.layer_norm is None else self.layer_norm(x), states)
