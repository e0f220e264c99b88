"""Replaced-token detection: a generator and a discriminator, pre-trained in one model.

ELECTRA, Clark et al. 2020, arXiv 2003.10555.  For ``--task masked_lm --criterion
replaced_token_detection``.  Fine-tuning takes the discriminator: ``--arch posenc_masked_lm
--restore-file CHECKPOINT``.
"""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.fields import Field, declared_fields
from fairseq_posenc.configuration.resolve import completed_within
from fairseq_posenc.configuration.stacks import masked_lm_stacks
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.registry import fields_of
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.models.family import Family, Preset, task_settings
from fairseq_posenc.models.masked_lm import MaskedLMModel, complete_masked_lm, own_fields
from fairseq_posenc.models.presets import BASE, LARGE, ROTARY, TINY
from fairseq_posenc.stacks.electra import Generator, ReplacedHead, sample_tokens
from fairseq_posenc.stacks.masked_lm import MaskedLMEncoder

MODEL = "posenc_electra"


@dataclass
class ElectraFlags:
    """Flags of the generator."""

    generator_size: Optional[float] = setting(
        0.25,
        "channels, heads and feed-forward channels of the generator, as a fraction of the "
        "discriminator's; both have as many layers",
        role="model",
        above=0,
        at_most=1,
    )


def _own_fields() -> List[Field]:
    return own_fields() + declared_fields(fields_of(ElectraFlags))


def _complete(cfg: Options, preset: Preset, settings: Options) -> None:
    complete_masked_lm(cfg, preset, settings, ELECTRA.dataclass)
    if cfg.mask_decoder_layers:
        raise UsageError(
            f"--mask-decoder-layers {cfg.mask_decoder_layers}: the discriminator of ELECTRA "
            "predicts no masked tokens; drop it, or give --arch posenc_masked_lm"
        )


# ELECTRA Table 6: the fraction of the small, base and large models
PRESETS: Dict[str, Preset] = {
    "roformer_electra_tiny": {**ROTARY, **TINY},
    "roformer_electra_base": {**ROTARY, **BASE, "generator_size": 1 / 3},
    "roformer_electra_large": {**ROTARY, **LARGE},
    "electra_base": {"position_encoding": "learned", **BASE, "generator_size": 1 / 3},
}

ELECTRA: Family = Family(
    model=MODEL,
    what="a generator with a discriminator",
    example="roformer_electra_base",
    tasks=("masked_lm",),
    own_fields=_own_fields,
    presets=PRESETS,
    stacks=masked_lm_stacks,
    complete=_complete,
    criterion="replaced_token_detection",
)


@ELECTRA.register
class ElectraModel(MaskedLMModel):
    """A discriminator, the encoder, with a generator that replaces tokens of its input.

    The encoder has no head that predicts tokens; the generator's is that of the model.

    Args:
        args: complete flat configuration.
        encoder: the discriminator.
        generator: the small masked language model.
    """

    def __init__(self, args: Options, encoder: MaskedLMEncoder, generator: Generator) -> None:
        encoder.lm_head = None
        super().__init__(args, encoder)
        self.generator = generator
        self.replaced_head = ReplacedHead(args.encoder_embed_dim, args.activation_fn)

    @classmethod
    def build_model(cls, args: Options, task: FairseqTask) -> "ElectraModel":
        """Build the model for *task* from a flat configuration.

        Raises:
            UsageError: flags contradict each other.
        """
        with completed_within(args):  # fairseq's RoBERTa adds entries, too
            ELECTRA.complete_for_task(args, task, task_settings(task))
            encoder = MaskedLMEncoder(args, task.source_dictionary)
            shared = encoder.sentence_encoder.embed_tokens
            model = cls(args, encoder, Generator(args, task.source_dictionary, shared))
        model.completed_settings = args
        return model

    def forward(
        self,
        src_tokens: Tensor,
        segment_labels: Optional[Tensor] = None,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: Optional[str] = None,
        relation: bool = False,
        masked_tokens: Optional[Tensor] = None,
        **kwargs: object,
    ) -> Tuple[Tensor, Any]:
        """Logits of the generator, and of the discriminator on what the generator writes.

        Args:
            src_tokens: (B, T), starting with [CLS].
            segment_labels: (B, T) segment of each token; default: by ``--segments``.
            features_only: stop at the discriminator's features.
            return_all_hiddens: also return the states between layers.
            classification_head_name: apply this head of the discriminator instead.
            relation: with *features_only*, also apply the head of pairs.
            masked_tokens: (B, T), True at tokens that the generator replaces; None for the
                generator's logits alone.
            kwargs: see :meth:`MaskedLMEncoder.forward`.

        Returns:
            logits of the generator for the N *masked_tokens*, (N, V), and ``{"tokens": what the
            discriminator reads, (B, T), "replaced": its logits, (B, T)}``; without *masked_tokens*
            logits (B, T, V), or what the arguments ask of the discriminator.
        """
        if features_only or classification_head_name is not None:
            return super().forward(
                src_tokens,
                segment_labels,
                features_only,
                return_all_hiddens,
                classification_head_name,
                relation,
            )
        logits, extra = self.generator(
            src_tokens,
            return_all_hiddens=return_all_hiddens,
            masked_tokens=masked_tokens,
            segment_labels=segment_labels,
        )
        if masked_tokens is None:
            return logits, extra
        drawn = sample_tokens(logits, repeatable=not self.training)
        tokens = src_tokens.masked_scatter(masked_tokens, drawn)
        features, _ = super().forward(tokens, segment_labels, features_only=True)
        return logits, {"tokens": tokens, "replaced": self.replaced_head(features)}
