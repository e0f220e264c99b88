"""Transformer encoder: fairseq's, with positions and masks worked out once per forward."""

from typing import Any, Callable, Dict, List, Optional

import torch
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from fairseq_posenc.attention.choice import ATTENTIONS
from fairseq_posenc.attention.feature_maps import number_random_features
from fairseq_posenc.attention.functional import add_terms
from fairseq_posenc.config import stack_of
from fairseq_posenc.encodings import Stack, build_encoding
from fairseq_posenc.modules.gated import GatedEncoderLayer
from fairseq_posenc.modules.layers import TransformerEncoderLayer, wrap_layer
from fairseq_posenc.modules.simple import simplify
from fairseq_posenc.modules.warm_start import State, adapt_positions

LAYERS: Dict[str, Callable[..., nn.Module]] = {
    "transformer": TransformerEncoderLayer,
    "gated": GatedEncoderLayer,
}


class TransformerEncoder(TransformerEncoderBase):
    """Encoder of N layers with any position encoding (RoFormer Table 1: N = 6).

    Args:
        cfg: fairseq's nested Transformer configuration with the encodings' flags.
        dictionary: source dictionary.
        embed_tokens: source embedding.
        return_fc: also return every layer's feed-forward output.
    """

    refuse_other_positions = ""  # what would work, if a checkpoint's position state has to fit

    def __init__(
        self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, return_fc: bool = False
    ) -> None:
        self.encoding = build_encoding(cfg, self.stack(cfg))  # read by build_encoder_layer
        self.masks = ATTENTIONS[cfg.attention].masks
        super().__init__(cfg, dictionary, embed_tokens, return_fc)
        self.position_bias = self.encoding.build_shared()
        self.position_map = self.encoding.query_key
        self.position_vectors = self.encoding.build_distances()
        number_random_features(self)
        simplify(self, cfg)

    def stack(self, cfg: Any) -> Stack:
        """What the encodings may know of this encoder."""
        return stack_of(cfg, "encoder")

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        """One layer, checkpointed and sharded as the flags ask."""
        return wrap_layer(LAYERS[cfg.layer](cfg, self.encoding, self.return_fc), cfg)

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
    ) -> Dict[str, List[Tensor]]:
        """Encode a batch; same arguments and result as fairseq's encoder.

        Args:
            src_tokens: (B, T), padded on either side.
            src_lengths: unused, as in fairseq.
            return_all_hiddens: also return the input of every layer and the last output.
            token_embeddings: (B, T, C) instead of looking *src_tokens* up.

        Returns:
            fairseq's dictionary of lists: encoder_out (T, B, C), encoder_padding_mask (B, T),
            encoder_embedding (B, T, C), encoder_states, fc_results, src_tokens, src_lengths (B, 1).
        """
        padding_mask = src_tokens.eq(self.padding_idx)
        mask = padding_mask if padding_mask.any() else None
        positions = self.encoding.positions(src_tokens.size(1), mask, src_tokens.device)
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        if mask is not None:
            x = x.masked_fill(mask.unsqueeze(-1), 0.0)
        x = x.transpose(0, 1)  # (B, T, C) -> (T, B, C)

        table = self.encoding.table(positions)
        shared = self.encoding.shared_bias(self.position_bias, positions, positions, x)
        more = shared is not None or bool(self.encoding.layer)
        causal = self.encoding.stack.causal
        bias, causal = self.masks(x.size(0), x.size(0), causal, mask, more, x)
        bias = add_terms(bias, shared)
        # content-dependent terms are the only ones to need positions in every layer
        layer_positions = positions if self.encoding.layer else None
        vectors = self.encoding.distance_vectors(self.position_vectors, x.size(0), x.size(0), x)

        states = [x] if return_all_hiddens else []
        fc_results: List[Optional[Tensor]] = []
        for layer in self.layers:
            x = layer(
                x,
                bias=bias,
                causal=causal,
                table=table,
                query_positions=layer_positions,
                key_positions=layer_positions,
                distance_vectors=vectors,
            )
            x, fc_result = x if self.return_fc else (x, None)
            if return_all_hiddens:
                states.append(x)
                fc_results.append(fc_result)
        if self.layer_norm is not None:
            x = self.layer_norm(x)

        lengths = (~padding_mask).sum(dim=1, dtype=torch.int32).unsqueeze(1)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding_mask],
            "encoder_embedding": [embedding],
            "encoder_states": states,
            "fc_results": fc_results,
            "src_tokens": [],
            "src_lengths": [lengths],
        }

    def upgrade_state_dict_named(self, state_dict: State, name: str) -> State:
        """Fit an older or differently encoded checkpoint, listing what position state changes."""
        super().upgrade_state_dict_named(state_dict, name)
        adapt_positions(self, state_dict, name)
        return state_dict
