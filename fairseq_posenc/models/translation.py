"""Translation: an encoder-decoder Transformer with any position encoding, and its presets."""

from functools import partial
from typing import Any, Dict, List, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_posenc.configuration.fields import (
    Field,
    SideFlags,
    declared_fields,
    flat_fields,
    stock_field,
)
from fairseq_posenc.configuration.resolve import configure, nested
from fairseq_posenc.configuration.stacks import translation_stacks
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.registry import fields_of
from fairseq_posenc.layers.initialisation import initialise
from fairseq_posenc.models.family import Family, Preset
from fairseq_posenc.models.presets import GAU, GAU_TINY, PERFORMER, ROFORMER_V2, ROTARY
from fairseq_posenc.stacks.decoder import TransformerDecoder
from fairseq_posenc.stacks.encoder import TransformerEncoder
from fairseq_posenc.stacks.positions import find_padding

MODEL = "posenc_transformer"


def transformer_fields() -> List[Field]:
    """The flags of the installed fairseq's ``transformer``, and those of the two sides."""
    return flat_fields(TransformerConfig) + declared_fields(fields_of(SideFlags))


def _own_fields() -> List[Field]:
    align = "decoder layer trained on word alignments"
    heads = "heads of that layer trained on alignments"
    context = "let the alignment see the whole target sentence"
    return [
        *transformer_fields(),
        stock_field("alignment_layer", int, align, None),
        stock_field("alignment_heads", int, heads, None),
        stock_field("full_context_alignment", bool, context, False),
    ]


def _sizes(channels: int, ffn: int, heads: int, layers: int) -> Dict[str, int]:
    return {
        "encoder_embed_dim": channels,
        "encoder_ffn_embed_dim": ffn,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_layers": layers,
        "decoder_layers": layers,
    }


TINY = _sizes(128, 512, 4, 2)
BASE = _sizes(512, 2048, 8, 6)  # RoFormer Table 1: the Transformer base of WMT14 En-De
_EMBEDDING_NORM = {"layernorm_embedding": True}
PRESETS: Dict[str, Preset] = {
    # for tests and the quickstart
    "roformer_tiny": {**ROTARY, **TINY},
    # fairseq's shape for small corpora
    "roformer_iwslt_de_en": {**ROTARY, **_sizes(512, 1024, 4, 6)},
    "roformer_base": {**ROTARY, **BASE},
    "roformer_wmt_en_de": {**ROTARY, **BASE},
    "roformer_big": {**ROTARY, **_sizes(1024, 4096, 16, 6), "dropout": 0.3},
    # Garg et al. 2019: word alignments supervised in one layer
    "roformer_align": {**ROTARY, **BASE, "alignment_layer": 4, "alignment_heads": 1},
    # baselines for rotary
    "tupe_tiny": {"position_encoding": "tupe", **TINY},
    "tupe_base": {"position_encoding": "tupe", **BASE},
    "t5bias_base": {"position_encoding": "t5", **BASE},
    "alibi_base": {"position_encoding": "alibi", **BASE},
    # RoFormer Eq. 32, with the clip distance of Shaw et al. section 4.1; Eq. 34; Eq. 37
    "shaw_base": {
        "position_encoding": "shaw",
        "shaw_values": True,
        "shaw_max_distance": 16,
        **BASE,
    },
    "transformer_xl_base": {"position_encoding": "transformer_xl", **BASE},
    "deberta_base": {"position_encoding": "deberta", **BASE},
    # RoFormer section 4.4; the baseline without rotary is --position-encoding sinusoidal
    "performer_tiny": {**PERFORMER, **TINY},
    "performer_base": {**PERFORMER, **BASE},
    # GAU sections 4.1 and 5.1; two units per Transformer layer
    "roformer_v2_base": {**ROFORMER_V2, **_EMBEDDING_NORM, **BASE},
    "gau_tiny": {
        **GAU_TINY,
        **_EMBEDDING_NORM,
        **TINY,
        "encoder_layers": 4,
        # a standard deviation of 0.02 suits 768 channels; with 128, training starts slowly
        "init_weights": "default",
    },
    "gau_base": {**GAU, **_EMBEDDING_NORM, **BASE, "encoder_layers": 12},
}


def _complete(cfg: Options, preset: Preset, settings: Options) -> None:
    configure(cfg, TRANSLATION.dataclass, preset)


TRANSLATION = Family(
    model=MODEL,
    what="a translation model",
    example="roformer_base",
    tasks=(
        "translation",
        "translation_multi_simple_epoch",
        "translation_from_pretrained_bart",
        "semisupervised_translation",
        "denoising",
        "multilingual_denoising",
        "span_masked_lm",
    ),
    own_fields=_own_fields,
    presets=PRESETS,
    stacks=translation_stacks,
    complete=_complete,
)


@TRANSLATION.register
class TranslationModel(TransformerModelBase):
    """Transformer for ``--task translation`` with position encodings in its attention.

    Args:
        cfg: fairseq's nested Transformer configuration with the encodings' flags.
        encoder: the encoder.
        decoder: the decoder.
    """

    def __init__(
        self, cfg: Options, encoder: TransformerEncoder, decoder: TransformerDecoder
    ) -> None:
        super().__init__(cfg, encoder, decoder)
        self.full_context_alignment = cfg.full_context_alignment  # read by fairseq-generate

    @classmethod
    def build_model(cls, cfg: Options, task: FairseqTask) -> "TranslationModel":
        """Build the model for *task* from a flat configuration.

        Raises:
            UsageError: the task needs another family, or flags contradict each other.
        """
        TRANSLATION.complete_for_task(cfg, task, task)
        model = super().build_model(nested(cfg), task)
        model.completed_settings = cfg
        initialise(model, cfg)
        return model

    @classmethod
    def build_encoder(
        cls, cfg: Options, src_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> nn.Module:
        """The encoder, with its position encodings."""
        return TransformerEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(
        cls, cfg: Options, tgt_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> nn.Module:
        """The decoder, with its position encodings."""
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
        """Encode the source, decode the target, and align them under ``--full-context-alignment``.

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
        source_padding, target_padding = find_padding(
            (src_tokens.eq(self.encoder.padding_idx), False),
            (prev_output_tokens.eq(self.decoder.padding_idx), True),
        )
        decode = partial(
            self.decoder,
            prev_output_tokens,
            encoder_out=self.encoder(
                src_tokens,
                src_lengths=src_lengths,
                return_all_hiddens=return_all_hiddens,
                padding=source_padding,
            ),
            alignment_layer=layer,
            alignment_heads=heads,
        )
        out, extra = decode(features_only=features_only, padding=target_padding)
        if self.full_context_alignment:
            _, alignment = decode(features_only=True, full_context_alignment=True)
            extra["attn"] = alignment["attn"]
        return out, extra
