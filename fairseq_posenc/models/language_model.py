"""Language models: fairseq's Transformer decoder with any position encoding, and its presets.

For ``--task language_modeling``: ``fairseq-train``, ``fairseq-eval-lm``, and prompts continued with
``fairseq-interactive`` and ``fairseq-generate``.
"""

import dataclasses
from typing import Any, Dict, List, Optional

from fairseq.models import FairseqLanguageModel
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from fairseq.tasks import FairseqTask

from fairseq_posenc.attention.memory import MemoryFlags
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.fields import Field, declared_fields, flat_fields
from fairseq_posenc.configuration.resolve import configure, is_complete, nested, open_config
from fairseq_posenc.configuration.stacks import language_model_stacks, stack_of
from fairseq_posenc.configuration.stock import STOCK_RANGES
from fairseq_posenc.configuration.variants import MEMORY_TASK, check_memory
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import fields_of
from fairseq_posenc.flags.settings import check_option
from fairseq_posenc.layers.initialisation import initialise
from fairseq_posenc.layers.token_embedding import build_embedding, check_embedding
from fairseq_posenc.models.family import Family, Preset, task_settings
from fairseq_posenc.models.presets import GAU, PERFORMER, ROTARY
from fairseq_posenc.stacks.language_model import LanguageModelDecoder, LanguageModelFlags

MODEL = "posenc_lm"
DEFAULT_LENGTH = 1024  # fairseq's, in tokens


def _own_fields() -> List[Field]:
    """The flags of the installed ``transformer_lm``; those of the task stay interpolations.

    These may be None, because a task may have no such flag.
    """
    defaults = TransformerLanguageModelConfig()
    references = [
        field
        for field in dataclasses.fields(TransformerLanguageModelConfig)
        if str(option(defaults, field.name)).startswith("${")
    ]
    names = {field.name for field in references}
    own = [field for field in flat_fields(TransformerLanguageModelConfig) if field[0] not in names]
    own += declared_fields(fields_of(LanguageModelFlags) + fields_of(MemoryFlags))
    return own + [
        (
            f.name,
            Optional[f.type],
            dataclasses.field(default=f.default, metadata=_reference(f.name)),
        )
        for f in references
    ]


def _reference(name: str) -> Dict[str, Any]:
    return {"role": "free", **STOCK_RANGES.get(name, {})}


def _shape(channels: int, heads: int, layers: int) -> Dict[str, Any]:
    """GPT-3's architecture, with fairseq's settings."""
    return {
        "decoder_embed_dim": channels,
        "decoder_ffn_embed_dim": 4 * channels,
        "decoder_attention_heads": heads,
        "decoder_layers": layers,
        "decoder_normalize_before": True,
        "share_decoder_input_output_embed": True,
        "activation_fn": "gelu",
        "dropout": 0.0,
    }


TINY = _shape(128, 4, 2)
# RoFormer 4.6.1 and 4.7 name the hyperparameters of GPT-3's 125 M and 1.3 B models, which are in
# Brown et al., arXiv 2005.14165, Table 2.1.  It lists 24 heads of 128 for the larger one, which do
# not fit 2,048 channels; 16 do.
SMALL, MEDIUM = _shape(768, 12, 12), _shape(2048, 16, 24)
PRESETS: Dict[str, Preset] = {
    "roformer_lm_tiny": {**ROTARY, **TINY},
    "roformer_lm_small": {**ROTARY, **SMALL},
    "roformer_lm_medium": {**ROTARY, **MEDIUM},
    # baselines for rotary
    "learned_lm_small": {"position_encoding": "learned", **SMALL},
    "t5bias_lm_small": {"position_encoding": "t5", **SMALL},
    "alibi_lm_small": {"position_encoding": "alibi", **SMALL},
    "shaw_lm_small": {"position_encoding": "shaw", **SMALL},
    "transformer_xl_lm_small": {"position_encoding": "transformer_xl", **SMALL},
    # RoFormer section 4.4: 12 layers, 768 channels, 12 heads; its baseline without rotary is
    # --position-encoding learned, as in the code it cites
    "performer_lm_enwik8": {**PERFORMER, **SMALL},
    # 24 units as in GAU section 5.1, two per Transformer layer; pre-norm like the others
    "gau_lm_small": {**SMALL, **GAU},
}


def _complete(cfg: Options, preset: Preset, settings: Options) -> None:
    """Complete a flat configuration; *settings* are those of the task."""

    def setting(name: str) -> Any:
        given = option(cfg, name)
        return option(settings, name) if given is None else given

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
    trained += int(option(cfg, "memory_length") or preset.get("memory_length", 0))
    preset = {"rotary_original_length": trained, **preset}
    fresh = not is_complete(cfg)
    configure(cfg, LANGUAGE_MODEL.dataclass, preset, language_model_stacks)
    check_embedding(cfg)
    check_memory(cfg, stack_of(cfg, "decoder"), settings, fresh)
    if cfg.lm_head == "roberta" and cfg.adaptive_softmax_cutoff is not None:
        raise UsageError(
            f"--lm-head roberta: --adaptive-softmax-cutoff {cfg.adaptive_softmax_cutoff} makes "
            "an output layer of its own; drop one of the two"
        )


LANGUAGE_MODEL = Family(
    model=MODEL,
    what="a language model",
    example="roformer_lm_small",
    tasks=("language_modeling", MEMORY_TASK, "multilingual_language_modeling"),
    own_fields=_own_fields,
    presets=PRESETS,
    stacks=language_model_stacks,
    complete=_complete,
)


@LANGUAGE_MODEL.register
class LanguageModel(FairseqLanguageModel):
    """Decoder for ``--task language_modeling`` with position encodings in its attention.

    Args:
        decoder: the decoder, without attention to a source.
    """

    @classmethod
    def build_model(cls, cfg: Options, task: FairseqTask) -> "LanguageModel":
        """Build the model for *task* from a flat configuration.

        Raises:
            UsageError: the task needs another family, or flags contradict each other.
        """
        LANGUAGE_MODEL.complete_for_task(cfg, task, task_settings(task))
        if cfg.decoder_layers_to_keep:
            cfg.decoder_layers = len(cfg.decoder_layers_to_keep.split(","))
        embed_tokens: Any = build_embedding(cfg, task.source_dictionary)
        model = cls(LanguageModelDecoder(nested(cfg), task.target_dictionary, embed_tokens))
        model.completed_settings = cfg
        initialise(model, cfg)
        return model
