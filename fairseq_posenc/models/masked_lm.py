"""Masked language models: fairseq's RoBERTa with any position encoding, and its presets.

For ``--task masked_lm`` and ``masked_lm_pairs``, and for fine-tuning with ``--task
sentence_prediction``, ``sentence_ranking`` and what :func:`register_fine_tuning` adds.
"""

import argparse
import logging
from argparse import Namespace
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from fairseq import hub_utils
from fairseq.dataclass import ChoiceEnum
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from fairseq.models.roberta.model import RobertaModel, base_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import FINE_TUNING, inherit, is_fine_tuning
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.checkpoints.warm_start import RELATION_HEAD, State, leave_out_pretraining
from fairseq_posenc.configuration.fields import Field, declared_fields, flat_fields, stock_field
from fairseq_posenc.configuration.resolve import (
    completed_within,
    configure,
    is_complete,
    open_config,
)
from fairseq_posenc.configuration.stacks import masked_lm_stacks
from fairseq_posenc.configuration.stock import STOCK_RANGES
from fairseq_posenc.configuration.variants import (
    SentenceEncoderFlags,
    check_funnel,
    check_mask_decoder,
    complete_funnel,
)
from fairseq_posenc.encodings import all_encodings
from fairseq_posenc.encodings.position_rules import DocumentFlags
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import fields_of
from fairseq_posenc.flags.settings import check_option, setting
from fairseq_posenc.layers.heads import ClassifierFlags, mean_of
from fairseq_posenc.layers.parameters import initialise
from fairseq_posenc.models import presets
from fairseq_posenc.models.documents import check_documents
from fairseq_posenc.models.family import Family, Preset
from fairseq_posenc.models.low_rank import LowRankModel, add_low_rank
from fairseq_posenc.models.roberta import HeadedModel, MaskedLMEncoder
from fairseq_posenc.models.segments import SegmentFlags, refuse_pairs_in_blocks, resolve_segments
from fairseq_posenc.models.trained_parts import train_parts

MODEL = "posenc_masked_lm"
logger = logging.getLogger(__name__)


@dataclass
class MaskedLMFlags(SegmentFlags, ClassifierFlags):
    """Flags of the masked language model, in addition to RoBERTa's."""

    encoder_input_dim: Optional[int] = setting(
        None,
        "size of a token embedding, if not --encoder-embed-dim",
        role="model",
        at_least=1,
        at_most=1_000_000,
    )
    lm_head: Optional[str] = setting(
        "roberta",
        "roberta: dense, activation, norm, projection; tied: the token embedding alone",
        role="model",
        choices=("roberta", "tied"),
    )
    causal: Optional[bool] = setting(False, "use causal attention", role="model")
    skip_first_norm: Optional[bool] = setting(
        False,
        "leave out the norm before the first attention, whose input --layernorm-embedding has "
        "normalised already, as in ModernBERT",
        role="model",
        needs={"encoder_normalize_before": None},
    )
    num_positions: Optional[int] = setting(
        None,
        "number of positions in learned and TUPE tables (default: --max-positions, or in "
        "fine-tuning that of the checkpoint)",
        role="model",
        at_least=1,
        at_most=2**31 - 1,
    )


def _roberta_fields() -> List[Field]:
    """The flags of the installed fairseq's RoBERTa, with its defaults."""
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


_FROM_TRANSFORMER = ("checkpoint_activations", "offload_activations")


def own_fields() -> List[Field]:
    """The flags of a masked language model, apart from those of positions and layers."""
    transformer = [f for f in flat_fields(TransformerConfig) if f[0] in _FROM_TRANSFORMER]
    flags = (MaskedLMFlags, SentenceEncoderFlags, DocumentFlags)
    own = [field for each in flags for field in fields_of(each)]
    return _roberta_fields() + transformer + declared_fields(own)


def complete_masked_lm(cfg: Options, preset: Preset, settings: Options, flags: type) -> None:
    """Complete and check, in place, the configuration of a masked language model.

    Args:
        cfg: flat configuration.
        preset: settings of the architecture.
        settings: those of the task.
        flags: the dataclass of the family.

    Raises:
        UsageError: flags contradict each other.
    """
    check_option(settings, "tokens_per_sample", STOCK_RANGES["tokens_per_sample"])
    longest = option(settings, "tokens_per_sample") or 512
    preset = {"position_encoding": "learned", "max_positions": longest, **preset}
    fresh = not is_complete(cfg)
    with open_config(cfg):
        complete_funnel(cfg)
    configure(cfg, flags, preset, masked_lm_stacks)
    check_funnel(cfg)
    check_mask_decoder(cfg)
    resolve_segments(cfg, settings)
    check_documents(cfg, settings, fresh)
    if cfg.lm_head == "tied" and cfg.encoder_input_dim != cfg.encoder_embed_dim:
        raise UsageError(
            f"--lm-head tied: needs embeddings of --encoder-embed-dim {cfg.encoder_embed_dim}, not "
            f"--encoder-input-dim {cfg.encoder_input_dim}"
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
    tasks=("masked_lm", "masked_lm_pairs", *FINE_TUNING, "multilingual_masked_lm"),
    own_fields=own_fields,
    presets=presets.MASKED_LM,
    stacks=masked_lm_stacks,
    configure=complete_masked_lm,
    inherit=_inherit,
)


def register_fine_tuning(task: str) -> None:
    """Let a task start from a pre-trained masked language model, whose settings it then takes."""
    FINE_TUNING.append(task)
    MASKED_LM.tasks += (task,)


@MASKED_LM.register
class MaskedLMModel(LowRankModel, HeadedModel):
    """RoBERTa with position encodings in its attention.

    Args:
        args: complete flat configuration.
        encoder: the encoder with its head.
    """

    family = MASKED_LM

    def __init__(self, args: Options, encoder: MaskedLMEncoder) -> None:
        super().__init__(args, encoder)
        self.reads_pairs = encoder.sentence_encoder.reads_pairs
        self.reads_documents = encoder.sentence_encoder.documents is not None
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
            bpe: how text is split, or None if it is not; a model folder brings its own.  Unlike in
                RoBERTa, GPT-2's is no default: fairseq would download it.
            kwargs: further settings of fairseq.
        """
        found = hub_utils.from_pretrained(
            model_name_or_path,
            checkpoint_file,
            data_name_or_path,
            archive_map=cls.hub_models(),
            bpe=bpe,
            load_checkpoint_heads=True,
            **kwargs,
        )
        interface = found.get("interface", RobertaHubInterface)  # that of a model folder
        return interface(found["args"], found["task"], found["models"][0])

    @classmethod
    def build_model(cls, args: Options, task: FairseqTask) -> "MaskedLMModel":
        """Build the model for *task* from a flat configuration.

        Raises:
            UsageError: the task needs another family, or flags contradict each other.
        """
        settings = task_settings(task)
        with completed_within(args):  # fairseq's RoBERTa adds entries, too
            cls.family.complete_for_task(args, task, settings)
            if args.untie_cls and option(settings, "init_token", 0) is None:
                raise UsageError(
                    "--untie-cls: without --init-token 0 the input of this task has no [CLS]; "
                    "give it"
                )
            model = cls(args, MaskedLMEncoder(args, task.source_dictionary))
        model.completed_settings = args
        if is_fine_tuning(settings):
            model.encoder.sentence_encoder.strict_positions = True
            model.encoder.sentence_encoder.strict_advice = "give its encoding and options"
        train_parts(model, args)
        add_low_rank(model, args)
        return model

    def forward(
        self,
        src_tokens: Tensor,
        segment_labels: Optional[Tensor] = None,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: Optional[str] = None,
        *,
        relation: bool = False,
        masked_tokens: Optional[Tensor] = None,
        spans: Optional[Tensor] = None,
        **kwargs: object,
    ) -> Tuple[Tensor, Any]:
        """Logits of the tokens, or of a classification or token head.

        Args:
            src_tokens: (B, T), starting with [CLS].
            segment_labels: (B, T) segment of each token; default: by ``--segments``.
            features_only: stop before the language-model head.
            return_all_hiddens: also return the states between layers.
            classification_head_name: apply this head instead.
            relation: also apply the head of :meth:`register_relation_head`.
            masked_tokens: (B, T), True where logits are needed; default everywhere.
            spans: (B, T), True for tokens to which :meth:`register_span_boundary_head`'s head is
                also applied.
            kwargs: see :meth:`MaskedLMEncoder.forward`.

        Returns:
            logits (B, T, V), or (N, V) for N *masked_tokens*, features (B, T, C), classes (B, N) of
            a classification head or (B, T, N) of a token head; and a dictionary with
            ``inner_states``, and ``relation`` (B, 2) and ``span_boundary`` (N, V) for N tokens of
            *spans* if asked for.
        """
        name, several = classification_head_name, relation or spans is not None
        x, extra = self.encoder(
            src_tokens,
            features_only=features_only or several or name is not None,
            return_all_hiddens=return_all_hiddens,
            masked_tokens=masked_tokens,
            segment_labels=segment_labels,
            by_token=name is None or name in self.token_heads or self.args.pooler == "mean",
            by_mask=name is None and not features_only,
            **kwargs,
        )
        if relation:
            extra["relation"] = self.classification_heads[RELATION_HEAD](x)
        if spans is not None:
            embedding = self.encoder.sentence_encoder.embed_tokens.weight
            extra["span_boundary"] = self.span_boundary_head(x, spans, embedding)
        if several and not features_only:
            x = self.encoder.output_layer(x, masked_tokens=masked_tokens)
        if name is not None:
            if self.args.pooler == "mean" and name not in self.token_heads:
                x = mean_of(x, src_tokens.ne(self.encoder.dictionary.pad()))
            x = self.head(name)(x)
        return x, extra

    def upgrade_state_dict_named(self, state_dict: State, name: str) -> None:
        """Adapt heads, and leave out what only pre-training needs."""
        super().upgrade_state_dict_named(state_dict, name)
        if self.encoder.lm_head is not None:  # None where another head is trained
            leave_out_pretraining(state_dict, name, self.encoder.lm_head)
