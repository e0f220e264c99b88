"""Translation: fairseq's encoder-decoder Transformer with any position encoding.

``--task multilingual_translation`` has an encoder and a decoder for every language pair; pairs can
share them.  ``--task translation_multi_simple_epoch`` trains a single model.  In beam search, all
hypotheses of a sentence share the keys of its source, so the decoder is told their number.
"""

from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from fairseq.data import Dictionary
from fairseq.models.multilingual_transformer import MultilingualTransformerModel
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_posenc.attention.cache import BEAM
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.features import translation_stacks
from fairseq_posenc.configuration.fields import Field, flat_fields, stock_field
from fairseq_posenc.configuration.resolve import configure, nested
from fairseq_posenc.flags.options import SIDES, Options, option
from fairseq_posenc.flags.registry import class_for
from fairseq_posenc.layers.parameters import initialise
from fairseq_posenc.models import presets
from fairseq_posenc.models.family import Family, PartlySaved, Preset
from fairseq_posenc.stacks.decoder import TransformerDecoder
from fairseq_posenc.stacks.encoder import TransformerEncoder
from fairseq_posenc.stacks.positions import read_padding

MODEL, MANY = "posenc_transformer", "multilingual_posenc_transformer"


def _own_fields() -> List[Field]:
    return [
        *flat_fields(TransformerConfig),
        stock_field("alignment_layer", int, "decoder layer trained on word alignments", None),
        stock_field("alignment_heads", int, "number of heads trained in --alignment-layer", None),
        stock_field("full_context_alignment", bool, "let alignments see the whole target", False),
    ]


TRANSLATION = Family(
    model=MODEL,
    what="a translation model",
    example="roformer_base",
    tasks=(
        *("translation", "translation_multi_simple_epoch", "translation_from_pretrained_bart"),
        *("semisupervised_translation", "denoising", "multilingual_denoising", "span_masked_lm"),
    ),
    own_fields=_own_fields,
    presets=presets.TRANSLATION,
    stacks=translation_stacks,
)


@TRANSLATION.register
class TranslationModel(PartlySaved, TransformerModelBase):
    """Transformer for ``--task translation`` with position encodings in its attention."""

    def __init__(
        self, cfg: Options, encoder: TransformerEncoder, decoder: TransformerDecoder
    ) -> None:
        super().__init__(cfg, encoder, decoder)
        self.full_context_alignment = cfg.full_context_alignment  # read by fairseq-generate

    @classmethod
    def build_model(cls, cfg: Options, task: FairseqTask) -> "TranslationModel":
        """Build the model for *task* from a flat configuration."""
        TRANSLATION.complete_for_task(cfg, task)
        model = super().build_model(nested(cfg), task)
        initialise(model, cfg)
        return TRANSLATION.finish(model, cfg)

    @classmethod
    def build_encoder(
        cls, cfg: Options, src_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> nn.Module:
        """The encoder, with its position encodings."""
        return class_for(TransformerEncoder, cfg)(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(
        cls, cfg: Options, tgt_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> nn.Module:
        """The decoder, with its position encodings."""
        decoder = class_for(TransformerDecoder, cfg)
        return decoder(cfg, tgt_dict, embed_tokens, cfg.no_cross_attention)

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

        Source tokens are (B, S), target tokens (B, T).  The cross-attention of *alignment_layer* is
        returned, averaged over *alignment_heads* of its heads; both arguments default to the flags.

        Returns:
            logits (B, T, V) and a dictionary with the cross-attention under ``"attn"``.
        """
        heads = self.cfg.alignment_heads if alignment_heads is None else alignment_heads
        layer = self.cfg.alignment_layer if alignment_layer is None else alignment_layer
        source_padding, target_padding = read_padding(
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


_SHARED = {
    "share_encoder_embeddings": "use one source embedding for all source languages",
    "share_decoder_embeddings": "use one target embedding for all target languages",
    "share_encoders": "use one encoder for all source languages",
    "share_decoders": "use one decoder for all target languages",
}


def _complete_multilingual(cfg: Options, family: Family, preset: Preset, settings: Options) -> None:
    configure(cfg, family, preset, settings)
    for name in (f"{side}_layers_to_keep" for side in SIDES):
        if option(cfg, name):
            raise UsageError(
                f"{flag_of(name)} {option(cfg, name)}: fairseq cannot leave out layers of a model "
                "of --task multilingual_translation; drop the flag"
            )


MULTILINGUAL = Family(
    model=MANY,
    what="a multilingual translation model",
    example="multilingual_roformer",
    tasks=("multilingual_translation",),
    own_fields=lambda: [
        *flat_fields(TransformerConfig),
        *(stock_field(name, bool, text, False) for name, text in _SHARED.items()),
    ],
    presets=presets.MULTILINGUAL,
    stacks=translation_stacks,
    configure=_complete_multilingual,
    like=(MODEL,),
    for_hydra=False,  # the task has no dataclass either
)


@MULTILINGUAL.register
class MultilingualModel(MultilingualTransformerModel):
    """One encoder-decoder per language pair, with position encodings in its attention."""

    @classmethod
    def build_model(cls, args: Options, task: FairseqTask) -> MultilingualTransformerModel:
        """Build the models of all pairs of *task* from a flat configuration."""
        MULTILINGUAL.complete_for_task(args, task)
        model = super().build_model(args, task)
        initialise(model, args)
        return MULTILINGUAL.finish(model, args)

    @classmethod
    def _get_module_class(
        cls,
        is_encoder: bool,
        args: Options,
        lang_dict: Dictionary,
        embed_tokens: nn.Embedding,
        langs: Sequence[str],
    ) -> nn.Module:
        build = TranslationModel.build_encoder if is_encoder else TranslationModel.build_decoder
        return build(nested(args), lang_dict, embed_tokens)


def counting_hypotheses(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *generate*: while it runs, the ensemble stores the number of hypotheses per sentence."""

    def wrapper(generator: SequenceGenerator, *args: object, **kwargs: object) -> Any:
        ensemble: Any = generator.model
        ensemble.beam = generator.beam_size
        try:
            return generate(generator, *args, **kwargs)
        finally:
            ensemble.beam = 1

    return wrapper


def telling_hypotheses(forward_decoder: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *forward_decoder*: put the number of hypotheses per sentence into the cache.

    fairseq itself would store the number in modules with ``set_beam_size``, and leave it there.
    """

    def wrapper(
        ensemble: EnsembleModel,
        tokens: Tensor,
        encoder_outs: Any,
        incremental_states: Sequence[Dict[str, Any]],
        *args: object,
        **kwargs: object,
    ) -> Any:
        for state in incremental_states:
            state[BEAM] = getattr(ensemble, "beam", 1)
        return forward_decoder(ensemble, tokens, encoder_outs, incremental_states, *args, **kwargs)

    return wrapper
