"""Language models: fairseq's Transformer decoder with any position encoding.

``fairseq-train`` and ``fairseq-eval-lm`` need ``--task language_modeling`` for them; to continue
prompts, use ``fairseq-interactive`` or ``fairseq-generate``.  BERT's output layer and segments are
options: RoFormer (Su et al., arXiv 2104.09864) was also released as a language model with both.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, List, Optional

from fairseq.data import Dictionary
from fairseq.models import FairseqLanguageModel
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.features import stack_of
from fairseq_posenc.configuration.fields import Field, declared_fields, flat_fields
from fairseq_posenc.configuration.resolve import configure, nested, open_config
from fairseq_posenc.configuration.stock import STOCK_RANGES
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import class_for, fields_of
from fairseq_posenc.flags.settings import check_option, setting
from fairseq_posenc.layers.heads import MaskedLMHead
from fairseq_posenc.layers.parameters import initialise
from fairseq_posenc.layers.token_embedding import build_embedding, check_embedding
from fairseq_posenc.models import presets
from fairseq_posenc.models.family import Family, PartlySaved, Preset
from fairseq_posenc.stacks.decoder import TransformerDecoder

MODEL = "posenc_lm"
DEFAULT_LENGTH = 1024  # fairseq's, in tokens


@dataclass
class LanguageModelFlags:
    """Flags of the language model, in addition to fairseq's."""

    lm_head: Optional[str] = setting(
        "projection",
        "projection: the output projection alone; roberta: dense, activation, norm, projection, as "
        "in masked language models",
        choices=("projection", "roberta"),
    )
    num_segments: Optional[int] = setting(
        0,
        "number of segment embeddings, 0 for none; every token is in the first segment",
        at_least=0,
        at_most=2**16,
    )


def _own_fields() -> List[Field]:
    """fairseq's flags of ``transformer_lm``; defaults that refer to the task stay interpolations.

    The value of an interpolation may be None, because the task may lack the flag.
    """
    stock = dataclasses.fields(TransformerLanguageModelConfig)
    references = {field.name: field for field in stock if str(field.default).startswith("${")}
    fields = [f for f in flat_fields(TransformerLanguageModelConfig) if f[0] not in references]
    fields += declared_fields(fields_of(LanguageModelFlags))
    for name, field in references.items():
        metadata = {"role": "free", **STOCK_RANGES.get(name, {})}
        reference = dataclasses.field(default=field.default, metadata=metadata)
        fields.append((name, Optional[field.type], reference))
    return fields


def _complete(cfg: Options, family: Family, preset: Preset, settings: Options) -> None:
    """Complete a flat configuration; *settings* are the task's."""

    def setting(name: str) -> Any:
        value = option(cfg, name)
        return option(settings, name) if value is None else value

    for flag in ("self_target", "past_target"):
        if setting(flag):
            raise UsageError(f"{flag_of(flag)}: these models predict the next token; drop it")
    for flag in ("tokens_per_sample", "max_target_positions"):
        for place in (cfg, settings):
            check_option(place, flag, STOCK_RANGES[flag])
    # --add-bos-token prepends one token to every block
    block = (setting("tokens_per_sample") or DEFAULT_LENGTH) + bool(setting("add_bos_token"))
    longest = setting("max_target_positions") or block
    # a block of whole sentences exceeds --tokens-per-sample if a single sentence does
    fixed = str(option(settings, "sample_break_mode")) in ("none", "None")
    trained = min(block, longest) if fixed else longest
    with open_config(cfg):
        cfg.max_target_positions = longest
    configure(cfg, family, preset, settings, trained)
    check_embedding(cfg)
    if cfg.lm_head == "roberta" and cfg.adaptive_softmax_cutoff is not None:
        raise UsageError(
            f"--lm-head roberta: --adaptive-softmax-cutoff {cfg.adaptive_softmax_cutoff} makes "
            "an output layer of its own; drop one of the two"
        )


LANGUAGE_MODEL = Family(
    model=MODEL,
    what="a language model",
    example="roformer_lm_small",
    tasks=("language_modeling", "multilingual_language_modeling"),
    own_fields=_own_fields,
    presets=presets.LANGUAGE_MODEL,
    stacks=lambda cfg: [stack_of(cfg, "decoder")],
    configure=_complete,
)


class LanguageModelDecoder(TransformerDecoder):
    """Decoder without cross-attention; *cfg* also has ``lm_head`` and ``num_segments``."""

    output_projection: Any

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=True)
        size = embed_tokens.embedding_dim
        self.embed_segments = nn.Embedding(cfg.num_segments, size) if cfg.num_segments else None
        if self.embed_segments is not None:
            nn.init.normal_(self.embed_segments.weight, std=size**-0.5)  # like token embeddings

    def build_output_projection(
        self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> None:
        """Build the output layer that ``--lm-head`` selects."""
        super().build_output_projection(cfg, dictionary, embed_tokens)
        if cfg.lm_head == "roberta":
            initialise(self.output_projection, cfg)  # before the head below shares the weight
            size, weight = self.output_embed_dim, self.output_projection.weight
            self.output_projection = MaskedLMHead(
                size, size, len(dictionary), cfg.activation_fn, weight
            )

    def embed(self, tokens: Tensor) -> Tensor:
        """Token embeddings (B, T, E), plus the first segment's embedding if there are segments."""
        x = super().embed(tokens)
        return x if self.embed_segments is None else x + self.embed_segments.weight[0]


@LANGUAGE_MODEL.register
class LanguageModel(PartlySaved, FairseqLanguageModel):
    """Decoder for ``--task language_modeling`` with position encodings in its attention."""

    @classmethod
    def build_model(cls, cfg: Options, task: FairseqTask) -> "LanguageModel":
        """Build the model for *task* from a flat configuration."""
        LANGUAGE_MODEL.complete_for_task(cfg, task)
        embed_tokens: Any = build_embedding(cfg, task.source_dictionary)
        decoder = class_for(LanguageModelDecoder, cfg)
        model = cls(decoder(nested(cfg), task.target_dictionary, embed_tokens))
        initialise(model, cfg)
        return LANGUAGE_MODEL.finish(model, cfg)
