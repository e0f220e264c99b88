"""Masked language models: fairseq's RoBERTa with any position encoding, and its presets.

Tasks for pre-training are ``masked_lm`` and those of :func:`register_pretraining`; for fine-tuning,
``sentence_prediction``, ``sentence_ranking`` and those of :func:`register_fine_tuning`.
"""

import argparse
import logging
from argparse import Namespace
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from fairseq import hub_utils
from fairseq.dataclass import ChoiceEnum
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from fairseq.models.roberta.model import RobertaModel, base_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks import FairseqTask
from omegaconf import OmegaConf

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import FINE_TUNING, inherit, is_fine_tuning
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.configuration.features import masked_lm_stack
from fairseq_posenc.configuration.fields import Field, declared_fields, flat_fields, stock_field
from fairseq_posenc.configuration.resolve import configure, open_config
from fairseq_posenc.configuration.stock import STOCK_RANGES
from fairseq_posenc.encodings import all_encodings
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import fields_of
from fairseq_posenc.flags.settings import check_option, setting
from fairseq_posenc.layers.heads import ClassifierFlags
from fairseq_posenc.layers.parameters import initialise
from fairseq_posenc.models import presets
from fairseq_posenc.models.family import Family, PartlySaved, Preset
from fairseq_posenc.models.roberta import MaskedLMEncoder, SentenceModel
from fairseq_posenc.models.segments import (
    SAMPLES,
    Samples,
    SegmentFlags,
    refuse_pairs_in_blocks,
    resolve_segments,
)

MODEL = "posenc_masked_lm"
logger = logging.getLogger(__name__)


@dataclass
class MaskedLMFlags(SegmentFlags, ClassifierFlags):
    """Flags of the masked language model, in addition to RoBERTa's."""

    encoder_input_dim: Optional[int] = setting(
        None, "size of a token embedding (--encoder-embed-dim)", at_least=1, at_most=1_000_000
    )
    lm_head: Optional[str] = setting(
        "roberta",
        "roberta: dense, activation, norm, projection; tied: only the token embedding",
        choices=("roberta", "tied"),
    )
    causal: Optional[bool] = setting(False, "use causal attention")
    skip_first_norm: Optional[bool] = setting(
        False,
        "leave out the norm before the first attention, whose input --layernorm-embedding has "
        "normalised already, as in ModernBERT",
        needs={"encoder_normalize_before": None},
    )
    num_positions: Optional[int] = setting(
        None,
        "number of positions in learned and TUPE tables (default: --max-positions, or in "
        "fine-tuning the checkpoint's number)",
        at_least=1,
        at_most=2**31 - 1,
    )


def _roberta_fields() -> List[Field]:
    parser = argparse.ArgumentParser(add_help=False)
    RobertaModel.add_args(parser)
    defaults = Namespace()
    base_architecture(defaults)
    fields = []
    for action in parser._actions:
        kind: Any = bool if action.nargs == 0 else action.type or str
        kind = ChoiceEnum(list(action.choices)) if action.choices else kind
        default = option(defaults, action.dest, action.default)
        fields.append(stock_field(action.dest, kind, action.help, default))
    return fields


def _own_fields() -> List[Field]:
    names = ("checkpoint_activations", "offload_activations")
    transformer = [field for field in flat_fields(TransformerConfig) if field[0] in names]
    return _roberta_fields() + transformer + declared_fields(fields_of(MaskedLMFlags))


def _complete(cfg: Options, family: Family, preset: Preset, settings: Options) -> None:
    check_option(settings, "tokens_per_sample", STOCK_RANGES["tokens_per_sample"])
    longest = option(settings, "tokens_per_sample") or 512
    preset = {"position_encoding": "learned", "max_positions": longest, **preset}
    configure(cfg, family, preset, settings)
    resolve_segments(cfg, settings)
    if cfg.lm_head == "tied" and cfg.encoder_input_dim != cfg.encoder_embed_dim:
        raise UsageError(
            f"--lm-head tied: needs token embeddings of size --encoder-embed-dim "
            f"{cfg.encoder_embed_dim}; drop --encoder-input-dim {cfg.encoder_input_dim}"
        )
    bounded = any(encoding.bounded for encoding in all_encodings(cfg.position_encoding))
    if cfg.max_positions > cfg.num_positions and bounded:
        raise UsageError(
            f"--max-positions {cfg.max_positions}: --position-encoding {cfg.position_encoding} has "
            f"a table of {cfg.num_positions} positions; give at most that"
        )


def _inherit(args: Options, arch: str, preset: Preset) -> None:
    inherit(args, MASKED_LM.dataclass, arch, preset)
    refuse_pairs_in_blocks(args)


MASKED_LM: Family = Family(
    model=MODEL,
    what="a masked language model",
    example="roformer_masked_lm_base",
    tasks=("masked_lm", *FINE_TUNING, "multilingual_masked_lm"),
    own_fields=_own_fields,
    presets=presets.MASKED_LM,
    stacks=lambda cfg: [masked_lm_stack(cfg)],
    configure=_complete,
    inherit=_inherit,
)


def register_pretraining(task: str, samples: Optional[Samples] = None) -> None:
    """Let *task* pre-train masked language models; *samples* becomes its entry in ``SAMPLES``."""
    if samples is not None:
        SAMPLES[task] = samples
    MASKED_LM.tasks += (task,)


def register_fine_tuning(task: str) -> None:
    """Let *task* fine-tune masked language models, with the settings of their checkpoints."""
    FINE_TUNING.append(task)
    MASKED_LM.tasks += (task,)


@MASKED_LM.register
class MaskedLMModel(PartlySaved, SentenceModel):
    """RoBERTa with position encodings in its attention; arguments as in the base class."""

    family = MASKED_LM

    def __init__(self, args: Options, encoder: MaskedLMEncoder) -> None:
        super().__init__(args, encoder)
        self.reads_pairs = encoder.sentence_encoder.reads_pairs
        self.reads_original = encoder.sentence_encoder.reads_original
        initialise(self, args)

    @classmethod
    def hub_models(cls) -> Dict[str, str]:
        """No models are available for download."""
        return {}

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        bpe: Optional[str] = "",
        **kwargs: Any,
    ) -> Any:
        """fairseq's hub interface to a checkpoint, or to a model folder.

        Args:
            model_name_or_path: the folder of the checkpoint, or a model folder.
            checkpoint_file: the checkpoint in that folder; not needed for a model folder.
            data_name_or_path: the folder of the dictionary; not read for a model folder.
            bpe: the ``--bpe`` that splits text, or None to pass token numbers; a model folder has
                its own.  RoBERTa's default, gpt2, is not used, because fairseq would download it.
            kwargs: further settings of fairseq.
        """
        kwargs.update(archive_map=cls.hub_models(), bpe=bpe, load_checkpoint_heads=True)
        loaded = hub_utils.from_pretrained(
            model_name_or_path, checkpoint_file, data_name_or_path, **kwargs
        )
        interface = loaded.get("interface", RobertaHubInterface)  # a model folder has one
        return interface(loaded["args"], loaded["task"], loaded["models"][0])

    @classmethod
    def build_model(cls, args: Options, task: FairseqTask) -> "MaskedLMModel":
        """Build the model for *task* from a flat configuration."""
        settings = task_settings(task)
        with open_config(args):  # building the model adds entries
            cls.family.complete_for_task(args, task)
            if args.untie_cls and option(settings, "init_token", 0) is None:
                raise UsageError(
                    "--untie-cls: without --init-token 0, the input has no [CLS]; give that flag"
                )
            model = cls(args, MaskedLMEncoder(args, task.source_dictionary))
        if OmegaConf.is_config(args):  # omegaconf 2.0 raises for absent entries of an open config
            OmegaConf.set_struct(args, True)
        if is_fine_tuning(settings):
            model.encoder.sentence_encoder.strict_positions = True
            model.encoder.sentence_encoder.strict_advice = "give the checkpoint's flags"
        return cls.family.finish(model, args)
