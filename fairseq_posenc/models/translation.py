"""Translation: an encoder-decoder Transformer with any position encoding, and its presets."""

from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    register_model,
    register_model_architecture,
)
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor, nn

from fairseq_posenc.config import TranslationConfig, configure, nested
from fairseq_posenc.models.families import refuse_other_criterions, refuse_other_families
from fairseq_posenc.modules.decoder import TransformerDecoder
from fairseq_posenc.modules.encoder import TransformerEncoder
from fairseq_posenc.modules.simple import initialise

MODEL = "posenc_transformer"


def _sizes(channels: int, ffn: int, heads: int, layers: int) -> Dict[str, int]:
    return {
        "encoder_embed_dim": channels,
        "encoder_ffn_embed_dim": ffn,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_layers": layers,
        "decoder_layers": layers,
    }


ROTARY = {"position_encoding": "rotary"}
TINY = _sizes(128, 512, 4, 2)
BASE = _sizes(512, 2048, 8, 6)  # RoFormer Table 1: the Transformer base of WMT14 En-De
SIMPLE = {
    **ROTARY,
    "norm": "unit",
    "layer_norm_eps": 1e-12,
    "no_bias": True,
    "init_weights": "truncated_normal",
    "layernorm_embedding": True,
}
PRESETS: Dict[str, Dict[str, Any]] = {
    MODEL: {},
    # for tests and the quickstart
    "roformer_tiny": {**ROTARY, **TINY},
    # fairseq's shape for small corpora
    "roformer_iwslt_de_en": {**ROTARY, **_sizes(512, 1024, 4, 6)},
    "roformer_base": {**ROTARY, **BASE},
    "roformer_wmt_en_de": {**ROTARY, **BASE},
    "roformer_big": {**ROTARY, **_sizes(1024, 4096, 16, 6), "dropout": 0.3},
    # Garg et al. 2019: word alignments supervised in one layer
    "roformer_align": {**ROTARY, **BASE, "alignment_layer": 4, "alignment_heads": 1},
    # what rotary is compared with
    "tupe_tiny": {"position_encoding": "tupe", **TINY},
    "tupe_base": {"position_encoding": "tupe", **BASE},
    "t5bias_base": {"position_encoding": "t5", **BASE},
    "alibi_base": {"position_encoding": "alibi", **BASE},
    # RoFormer Eq. 32, with the clip distance of Shaw et al. section 4.1; Eq. 34; Eq. 37
    "shaw_base": {"position_encoding": "shaw", "shaw_values": True, "shaw_distance": 16, **BASE},
    "transformer_xl_base": {"position_encoding": "transformer_xl", **BASE},
    "deberta_base": {"position_encoding": "deberta", **BASE},
    # RoFormer section 4.4; without rotary by --position-encoding sinusoidal
    "performer_tiny": {**ROTARY, "attention": "favor", **TINY},
    "performer_base": {**ROTARY, "attention": "favor", **BASE},
    # GAU sections 4.1 and 5.1; two units for a Transformer layer
    "roformer_v2_base": {**SIMPLE, **BASE},
    "gau_tiny": {
        **SIMPLE,
        **TINY,
        "layer": "gated",
        "encoder_layers": 4,
        "gau_key_size": 32,
        "init_weights": "usual",  # a deviation of 0.02 suits 768 channels; with 128 it learns late
    },
    "gau_base": {**SIMPLE, **BASE, "layer": "gated", "encoder_layers": 12},
}


@register_model(MODEL, dataclass=TranslationConfig)
class TranslationModel(TransformerModelBase):
    """Transformer for ``--task translation`` whose attention layers know positions.

    Args:
        cfg: fairseq's nested Transformer configuration with the encodings' flags.
        encoder: the encoder.
        decoder: the decoder.
    """

    def __init__(self, cfg: Any, encoder: TransformerEncoder, decoder: TransformerDecoder) -> None:
        super().__init__(cfg, encoder, decoder)
        self.full_context_alignment = cfg.full_context_alignment  # read by fairseq-generate

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the flags without defaults, so that what was not given can be told."""
        gen_parser_from_dataclass(parser, TranslationConfig(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "TranslationModel":
        """Build the model for *task* from a flat configuration.

        Raises:
            UsageError: if the task is of another family or the flags contradict each other.
        """
        refuse_other_families("translation", getattr(cfg, "_name", MODEL), task)
        configure(cfg, TranslationConfig, {})
        model = super().build_model(nested(cfg), task)
        model.completed_settings = cfg
        initialise(model, cfg)
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Embedding) -> nn.Module:
        """The encoder, with positions."""
        return TransformerEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> nn.Module:
        """The decoder, with positions."""
        return TransformerDecoder(cfg, tgt_dict, embed_tokens, cfg.no_cross_attention)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor],
        prev_output_tokens: Tensor,
        return_all_hiddens: bool = True,
        features_only: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Encode the source, decode the target, and align them if the flags say so.

        Args:
            src_tokens: (B, S).
            src_lengths: (B), unused.
            prev_output_tokens: target shifted right, (B, T).
            return_all_hiddens: also return the states between layers.
            features_only: stop before the projection to the vocabulary.
            alignment_layer: layer whose attention is returned; default ``--alignment-layer``.
            alignment_heads: heads averaged there; default ``--alignment-heads``.

        Returns:
            logits (B, T, V) and a dictionary with the attention under ``"attn"``.
        """
        heads = self.cfg.alignment_heads if alignment_heads is None else alignment_heads
        layer = self.cfg.alignment_layer if alignment_layer is None else alignment_layer
        decode = partial(
            self.decoder,
            prev_output_tokens,
            encoder_out=self.encoder(
                src_tokens, src_lengths=src_lengths, return_all_hiddens=return_all_hiddens
            ),
            alignment_layer=layer,
            alignment_heads=heads,
        )
        out, extra = decode(features_only=features_only)
        if self.full_context_alignment:
            _, alignment = decode(features_only=True, full_context_alignment=True)
            extra["attn"] = alignment["attn"]
        return out, extra


def _architecture(name: str, preset: Dict[str, Any]) -> Callable[[Any], None]:
    def architecture(cfg: Any) -> None:
        refuse_other_families("translation", name, cfg)
        configure(cfg, TranslationConfig, preset)
        refuse_other_criterions(cfg)

    return architecture


for _name, _preset in PRESETS.items():
    if _name != MODEL:
        register_model_architecture(MODEL, _name)(_architecture(_name, _preset))
# register_model has put a function there that does nothing; defaults belong into the checkpoint
ARCH_CONFIG_REGISTRY[MODEL] = _architecture(MODEL, PRESETS[MODEL])
