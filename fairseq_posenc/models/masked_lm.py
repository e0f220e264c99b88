"""Masked language models: fairseq's RoBERTa with any position encoding, and its presets.

For ``--task masked_lm``, and for fine-tuning with ``--task sentence_prediction``.
"""

import argparse
import logging
from argparse import Namespace
from typing import Any, Callable, Dict, List, Optional, Tuple

from fairseq.dataclass import ChoiceEnum
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from fairseq.models.roberta.model import RobertaModel, base_architecture
from fairseq.models.transformer import TransformerConfig
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_posenc.config import (
    Field,
    configure,
    encoding_fields,
    family_config,
    fill,
    flat_fields,
    layer_fields,
    optional,
)
from fairseq_posenc.encodings import build_encoding
from fairseq_posenc.errors import UsageError
from fairseq_posenc.models.families import refuse_other_families
from fairseq_posenc.models.fine_tuning import inherit, is_fine_tuning
from fairseq_posenc.modules.masked_lm import MaskedLMEncoder, masked_lm_stack
from fairseq_posenc.modules.simple import initialise
from fairseq_posenc.modules.warm_start import State

MODEL = "posenc_masked_lm"
logger = logging.getLogger(__name__)


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
        default = getattr(defaults, action.dest, action.default)
        fields.append(optional(action.dest, kind, {"help": action.help, "default": default}))
    return fields


LM_HEADS = ("roberta", "tied")

# what the encoder can do beside RoBERTa's flags
_FROM_TRANSFORMER = ("checkpoint_activations", "offload_activations")
_OWN: List[Tuple[str, Any, str, Any]] = [
    ("num_segments", int, "size of a table of segment embeddings; 0 for none", 0),
    ("encoder_input_dim", int, "size of a token embedding, if not --encoder-embed-dim", None),
    (
        "lm_head",
        str,
        "roberta: dense, activation, norm, projection; tied: the token embedding alone",
        "roberta",
    ),
    ("causal", bool, "hide later tokens from earlier ones", False),
    (
        "num_positions",
        int,
        "positions in learned and TUPE tables, if not --max-positions; a checkpoint that is "
        "fine-tuned brings its own",
        None,
    ),
]

MaskedLMConfig = family_config(
    "MaskedLMConfig",
    _roberta_fields()
    + [f for f in flat_fields(TransformerConfig) if f[0] in _FROM_TRANSFORMER]
    + encoding_fields()
    + layer_fields()
    + [optional(name, kind, {"help": text, "default": d}) for name, kind, text, d in _OWN],
)


def _sizes(channels: int, heads: int, layers: int) -> Dict[str, Any]:
    return {
        "encoder_embed_dim": channels,
        "encoder_ffn_embed_dim": 4 * channels,
        "encoder_attention_heads": heads,
        "encoder_layers": layers,
    }


def _gated(channels: int, units: int) -> Dict[str, Any]:
    return {"layer": "gated", "encoder_embed_dim": channels, "encoder_layers": units}


TINY, BASE, LARGE = _sizes(128, 4, 2), _sizes(768, 12, 12), _sizes(1024, 16, 24)
# what RoFormerV2 and GAU have in common
V2 = {
    "position_encoding": "rotary",
    "norm": "unit",
    "layer_norm_eps": 1e-12,
    "no_bias": True,
    "init_weights": "truncated_normal",
    "lm_head": "tied",
    "num_segments": 2,
    "activation_fn": "relu",
}
_UNTIED = {"untie_cls": True, **BASE}
PRESETS: Dict[str, Dict[str, Any]] = {
    MODEL: {},
    "roformer_masked_lm_tiny": {"position_encoding": "rotary", **TINY},
    "roformer_masked_lm_base": {"position_encoding": "rotary", **BASE},
    "roformer_masked_lm_large": {"position_encoding": "rotary", **LARGE},
    # TUPE Table 2, from BERT-A to its ablations
    "bert_a_masked_lm_base": {"position_encoding": "learned", **BASE},
    "bert_r_masked_lm_base": {"position_encoding": "learned+t5", **BASE},
    "tupe_a_masked_lm_base": {"position_encoding": "tupe", **_UNTIED},
    "tupe_r_masked_lm_base": {"position_encoding": "tupe+t5", **_UNTIED},
    "tupe_a_tie_cls_masked_lm_base": {"position_encoding": "tupe", "untie_cls": False, **BASE},
    "bert_ad_masked_lm_base": {"position_encoding": "separate", **BASE},
    # the relative positions of RoFormer Eq. 32 (keys alone), 34 and 37, in BERT's shape
    "shaw_masked_lm_base": {"position_encoding": "shaw", **BASE},
    "transformer_xl_masked_lm_base": {"position_encoding": "transformer_xl", **BASE},
    "deberta_masked_lm_base": {"position_encoding": "deberta", **BASE},
    # RoFormer section 4.4; without rotary by --position-encoding learned
    "performer_masked_lm_tiny": {"position_encoding": "rotary", "attention": "favor", **TINY},
    "performer_masked_lm_base": {"position_encoding": "rotary", "attention": "favor", **BASE},
    # GAU sections 4.1 and 5.1
    "roformer_v2_masked_lm_tiny": {**V2, **TINY},
    "roformer_v2_masked_lm_base": {**V2, **BASE},
    "roformer_v2_masked_lm_large": {**V2, **LARGE},
    "gau_masked_lm_tiny": {**V2, **_gated(128, 4), "gau_key_size": 32},
    "gau_masked_lm_base": {**V2, **_gated(768, 24)},
}


def _configure(cfg: Any, preset: Dict[str, Any], longest: Optional[int]) -> None:
    """Complete a flat configuration for inputs of at most *longest* tokens."""
    usual = {"position_encoding": "learned", "max_positions": longest or 512}
    configure(cfg, MaskedLMConfig, {**usual, **preset}, lambda cfg: [masked_lm_stack(cfg)])
    if cfg.lm_head not in LM_HEADS:
        raise UsageError(f"--lm-head {cfg.lm_head}: must be {' or '.join(LM_HEADS)}")
    if cfg.lm_head == "tied" and cfg.encoder_input_dim != cfg.encoder_embed_dim:
        raise UsageError(
            f"--lm-head tied: needs embeddings of --encoder-embed-dim {cfg.encoder_embed_dim}, not "
            f"--encoder-input-dim {cfg.encoder_input_dim}"
        )
    if cfg.max_positions > cfg.num_positions and build_encoding(cfg, masked_lm_stack(cfg)).bounded:
        raise UsageError(
            f"--max-positions {cfg.max_positions}: --position-encoding {cfg.position_encoding} has "
            f"a table of {cfg.num_positions} positions; give at most that"
        )


@register_model(MODEL, dataclass=MaskedLMConfig)
class MaskedLMModel(RobertaModel):
    """RoBERTa whose attention layers know positions.

    Args:
        args: complete flat configuration.
        encoder: the encoder with its head.
    """

    def __init__(self, args: Any, encoder: MaskedLMEncoder) -> None:
        super().__init__(args, encoder)
        self.token_heads = nn.ModuleDict()
        initialise(self, args)

    @classmethod
    def hub_models(cls) -> Dict[str, str]:
        """No model can be downloaded by name."""
        return {}

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the flags without defaults, so that what was not given can be told."""
        gen_parser_from_dataclass(parser, MaskedLMConfig(), delete_default=True)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "MaskedLMModel":
        """Build the model for *task* from a flat configuration.

        Raises:
            UsageError: if the task is of another family or the flags contradict each other.
        """
        refuse_other_families("masked_lm", getattr(args, "_name", MODEL), task)
        settings = getattr(task, "cfg", None) or getattr(task, "args", None)
        if OmegaConf.is_config(args):
            OmegaConf.set_struct(args, False)  # fairseq's RoBERTa adds to it, too
        _configure(args, {}, getattr(settings, "tokens_per_sample", None))
        if args.untie_cls and getattr(settings, "init_token", 0) is None:
            raise UsageError(
                "--untie-cls: without --init-token 0 the input of this task has no [CLS]; give it"
            )
        model = cls(args, MaskedLMEncoder(args, task.source_dictionary))
        model.completed_settings = args
        if is_fine_tuning(settings):
            model.encoder.sentence_encoder.refuse_other_positions = "give its encoding and options"
        if OmegaConf.is_config(args):
            OmegaConf.set_struct(args, True)  # omegaconf 2.0 needs it, or getattr gives no default
        return model

    def forward(
        self,
        src_tokens: Tensor,
        segment_labels: Optional[Tensor] = None,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: Optional[str] = None,
        **kwargs: Any,
    ) -> Tuple[Tensor, Any]:
        """Logits of the tokens, or of a classification or token head.

        Args:
            src_tokens: (B, T), starting with [CLS].
            segment_labels: (B, T) segment of each token; default 0.
            features_only: stop before the language-model head.
            return_all_hiddens: also return the states between layers.
            classification_head_name: apply this head instead.
            kwargs: see :meth:`MaskedLMEncoder.forward`.

        Returns:
            logits (B, T, V), features (B, T, C), classes (B, N) of a classification head or
            (B, T, N) of a token head; and a dictionary with ``inner_states``.
        """
        name = classification_head_name
        x, extra = self.encoder(
            src_tokens,
            features_only=features_only or name is not None,
            return_all_hiddens=return_all_hiddens,
            segment_labels=segment_labels,
            **kwargs,
        )
        if name is not None:
            x = (self.token_heads if name in self.token_heads else self.classification_heads)[name](
                x
            )
        return x, extra

    def register_token_head(self, name: str, num_classes: int) -> None:
        """Add a classifier of every token, one projection of the features (B, T, C)."""
        self.token_heads[name] = nn.Linear(self.args.encoder_embed_dim, num_classes)

    def upgrade_state_dict_named(self, state_dict: State, name: str) -> None:
        """Fit heads and older names, as fairseq does, and token heads likewise."""
        super().upgrade_state_dict_named(state_dict, name)
        prefix = f"{name}.token_heads." if name else "token_heads."
        for key in [key for key in state_dict if key.startswith(prefix)]:
            head = key[len(prefix) :].split(".")[0]
            if head not in self.token_heads and self.args.load_checkpoint_heads:
                self.register_token_head(head, len(state_dict[key]))
            if head not in self.token_heads:
                logger.warning("left out %s, for want of --load-checkpoint-heads", key)
                del state_dict[key]


def _architecture(name: str, preset: Dict[str, Any]) -> Callable[[Any], None]:
    def architecture(args: Any) -> None:
        if OmegaConf.is_config(args):  # hydra: build_model follows, which knows the longest input
            fill(args, preset)
            return
        refuse_other_families("masked_lm", name, args)
        inherit(args, name, preset)
        _configure(args, preset, getattr(args, "tokens_per_sample", None))

    return architecture


for _name, _preset in PRESETS.items():
    if _name != MODEL:
        register_model_architecture(MODEL, _name)(_architecture(_name, _preset))
# register_model has put a function there that does nothing; defaults belong into the checkpoint
ARCH_CONFIG_REGISTRY[MODEL] = _architecture(MODEL, PRESETS[MODEL])
