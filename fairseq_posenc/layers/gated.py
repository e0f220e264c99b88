"""Layers of gated attention units, in place of Transformer layers.

GAU, Liu, sections 2.3 and 4.1: one unit replaces half a Transformer layer.  An encoder layer is one
unit; a decoder layer is a unit, the attention to the source, and another unit.
"""

from typing import Dict, Optional

from fairseq.modules import LayerNorm
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.attention.functional import drop
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.flags.options import Layer, Options
from fairseq_posenc.layers.parameters import apply_norms_and_biases
from fairseq_posenc.layers.transformer import (
    DecoderForward,
    Prepared,
    attention_to_source,
    self_attention,
)


class _GatedLayer(nn.Module):
    """Base of encoder and decoder layers: units, norms, dropout, residual connections."""

    self_attn: nn.Module

    def __init__(self, cfg: Options, side: Layer, encoding: PositionEncoding) -> None:
        super().__init__()
        self.encoding = encoding
        self.embed_dim = side.embed_dim
        self.normalize_before = side.normalize_before
        self.dropout_module = FairseqDropout(cfg.dropout, module_name=type(self).__name__)
        self.self_attn = self_attention(self.embed_dim, encoding, cfg)
        self.self_attn_layer_norm = LayerNorm(self.embed_dim)

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        """Called by fairseq; gated layers have no older parameter names to upgrade."""


class GatedEncoderLayer(_GatedLayer):
    """x ← Norm(x + GAU(x)) (GAU section 4.1)."""

    def __init__(self, cfg: Options, encoding: PositionEncoding) -> None:
        super().__init__(cfg, cfg.encoder, encoding)
        apply_norms_and_biases(self, cfg)

    def forward(self, x: Tensor, **prepared: Prepared) -> Tensor:
        """Apply the layer; the arguments are as in :class:`.TransformerEncoderLayer`."""
        norm, pre_norm = self.self_attn_layer_norm, self.normalize_before
        out = self.self_attn(norm(x) if pre_norm else x, **prepared)
        x = x + drop(out, self.dropout_module)
        return x if pre_norm else norm(x)


class GatedDecoderLayer(DecoderForward, _GatedLayer):
    """A causal unit, attention to the source and another causal unit, with residuals and norms."""

    def __init__(
        self, cfg: Options, encoding: PositionEncoding, no_encoder_attn: bool = False
    ) -> None:
        super().__init__(cfg, cfg.decoder, encoding)
        self.need_attn = True
        self.c_attn = self.attn_ln = self.w_resid = None
        self.encoder_attn: Optional[nn.Module] = None
        if not no_encoder_attn:
            self.encoder_attn = attention_to_source(self.embed_dim, cfg)
            self.encoder_attn_layer_norm = LayerNorm(self.embed_dim)
        self.second_attn = self_attention(self.embed_dim, encoding, cfg)
        self.final_layer_norm = LayerNorm(self.embed_dim)
        apply_norms_and_biases(self, cfg)

    def _last(self, x: Tensor, incremental_state: IncrementalState, **prepared: Prepared) -> Tensor:
        return self.second_attn(x, incremental_state=incremental_state, **prepared)

    def make_generation_fast_(self, need_attn: bool = False, **unused: object) -> None:
        """Return attention weights in generation only if *need_attn*."""
        self.need_attn = need_attn
