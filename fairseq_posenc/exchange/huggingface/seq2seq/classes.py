"""BART's classes of transformers for translation: which models they hold, and their config.json.

Marian's own sinusoids, norms last                                MarianMTModel
learned positions, norm of the embeddings, norms last             BartForConditionalGeneration
the same with norms first                                         MBartForConditionalGeneration
sinusoidal positions, norms first                                 M2M100ForConditionalGeneration

T5's is in :mod:`~fairseq_posenc.exchange.huggingface.seq2seq.t5`.
"""

from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.names import (
    FC1,
    FC2,
    NORM_1,
    NORM_2,
    OUT,
    Joint,
    K,
    Names,
    Q,
    V,
)
from fairseq_posenc.exchange.huggingface.seq2seq.names import (
    CROSS_K,
    CROSS_NORM,
    CROSS_OUT,
    CROSS_Q,
    CROSS_V,
)
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import Settings

#: Layers of both sides that have our own names.
_SELF = tuple(Joint(name, (name,)) for name in (Q, K, V, OUT, NORM_1))
_CROSS = tuple(Joint(n, (n,)) for n in (CROSS_Q, CROSS_K, CROSS_V, CROSS_OUT, CROSS_NORM))
_LAST = tuple(Joint(name, (name,)) for name in (FC1, FC2, NORM_2))
LENGTHS = ("max_source_positions", "max_target_positions")
NORMS_FIRST = {"encoder_normalize_before": (True,), "decoder_normalize_before": (True,)}


class Seq2SeqClass:
    """A class of transformers that translates; this one has the names of BART's layers."""

    #: the name of the class
    architecture: str
    #: the name of the model in config.json
    model_type: str
    #: start of the names of a layer, by side
    layers: Mapping[str, str] = {side: f"model.{side}.layers.{{}}." for side in SIDES}
    #: stack-level norms by our names
    norms: Mapping[str, str] = {}
    #: the embedding of both sides, and those of each side
    shared = "model.shared.weight"
    apart: Mapping[str, str] = {side: f"model.{side}.embed_tokens.weight" for side in SIDES}
    #: whether the embeddings of the sides can differ
    two_embeddings = False
    #: the symbol that begins a translation, where config.json does not say it
    start = "</s>"
    output = "lm_head.weight"
    #: the bias of the output, or nothing
    bias: Optional[str] = "final_logits_bias"
    #: tables of positions by side, and the rows before that of the first position
    tables: Mapping[str, str] = {side: f"model.{side}.embed_positions.weight" for side in SIDES}
    offset = 2
    #: makes the tables (rows, C) of a class that computes them anew in place of saving them
    computed: Optional[Callable[[int, int], Tensor]] = None
    #: whether its projections have biases
    biased = True
    #: settings, beside sizes, of which the class can express every value
    read: Collection[str] = ("activation_fn", "no_bias")
    #: other settings, with the values that the class can express; all others need their defaults
    values: Mapping[str, Tuple[Any, ...]] = {}
    #: the position encodings of the class
    encodings: Collection[str] = ("sinusoidal", "learned", "none")
    #: the entries of config.json for sizes, by our settings
    sizes: Mapping[str, str] = {
        "encoder_embed_dim": "d_model",
        **{f"{side}_layers": f"{side}_layers" for side in SIDES},
        **{f"{side}_attention_heads": f"{side}_attention_heads" for side in SIDES},
        **{f"{side}_ffn_embed_dim": f"{side}_ffn_dim" for side in SIDES},
    }
    #: settings that have to be equal
    equal: Tuple[Tuple[str, ...], ...] = (
        ("encoder_embed_dim", "decoder_embed_dim", "decoder_input_dim", "decoder_output_dim"),
    )
    #: other names of entries, which the class reads as well
    aliases: Mapping[str, str] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    }
    #: the name of the longest text in config.json, and what it is if none is there
    longest: Tuple[str, int] = ("max_position_embeddings", 1024)
    #: activation and scaling of embeddings where config.json does not say them
    activation, scales = "gelu", False
    #: whether its norms have gains that ours lack
    gainless = False

    def joints(self, side: str, settings: Settings) -> Tuple[Joint, ...]:
        """The modules of a layer of one side."""
        return (*_SELF, *(_CROSS if side == "decoder" else ()), *_LAST)

    def names(self, side: str, settings: Settings) -> Names:
        """The names in the layers of one side."""
        return Names(self.layers[side], self.joints(side, settings), self.shared, {})

    def tied(self, config: Config) -> bool:
        """Whether the output is the embedding, given config.json."""
        return config.flag("tie_word_embeddings", True)

    def shares(self, config: Config) -> bool:
        """Whether both sides have the same embedding, given config.json."""
        return True

    def pairs(self, config: Config, tensors: Collection[str]) -> List[Tuple[str, str]]:
        """Names of tensors that are equal where the output is the embedding, the output first."""
        sides = [(name, self.shared) for name in self.apart.values()]
        decoder = self.apart["decoder"] if self.apart["decoder"] in tensors else self.shared
        return [(self.output, decoder), *(sides if self.shares(config) else ())]

    def check(self, settings: Settings, path: str) -> None:
        """Refuse sizes that differ where the class has one.

        Args:
            settings: complete settings.
            path: the checkpoint, for messages.
        """
        for first, *others in self.equal:
            for other in others:
                if settings[other] != settings[first]:
                    raise UsageError(
                        f"{path}: {flag_of(other)} {settings[other]}: {self.architecture} has "
                        f"that of {flag_of(first)}, {settings[first]}; nothing was written"
                    )

    def entries(self, settings: Settings, path: str) -> Dict[str, Any]:
        """Its entries of config.json, given complete settings that it can hold."""
        return {
            **{theirs: settings[ours] for ours, theirs in self.sizes.items()},
            "activation_function": hf.activation_for(settings["activation_fn"], path),
            "scale_embedding": not settings["no_scale_embedding"],
            "max_position_embeddings": max(settings[name] for name in LENGTHS),
            **{name: settings[name] for name in ("dropout", "attention_dropout")},
            "activation_dropout": settings["activation_dropout"],
        }

    def settings(self, config: Config) -> Settings:
        """The flags of a model, given its config.json; those of positions come with its tables.

        Raises:
            UsageError: an entry is missing, or has a value that cannot be imported.
        """
        config.one_of("is_encoder_decoder", True, (True,))
        for entry in ("normalize_before", "add_final_layer_norm", "normalize_embedding"):
            usual = self.usual.get(entry)
            if usual is not None:  # old files of BART's class say it
                config.one_of(entry, usual, (usual,))
        found: Settings = config.sizes(self.sizes)
        for first, *others in self.equal:
            found.update(dict.fromkeys(others, found[first]))
        rates = ("dropout", "attention_dropout", "activation_dropout")
        return {
            **found,
            **{name: values[0] for name, values in self.values.items()},
            "activation_fn": hf.activation_of(config, "activation_function", self.activation),
            "no_scale_embedding": not config.flag("scale_embedding", self.scales),
            **dict.fromkeys(LENGTHS, config.length(*self.longest)),
            **{name: config.fraction(name, 0.0) for name in rates},
        }

    #: values of entries that other models of the same class have
    usual: Mapping[str, bool] = {}


def marian_sinusoids(rows: int, channels: int) -> Tensor:
    """sin(i / 10000^(2t/C)) for all t, then the cosines, (rows, C); i from 0."""
    t = torch.arange(0, channels, 2, dtype=torch.float64)
    angles = torch.arange(rows, dtype=torch.float64)[:, None] / 10000.0 ** (t / channels)
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()[:, :channels]


class Marian(Seq2SeqClass):
    """``MarianMTModel``, whose sinusoids have other frequencies than fairseq's."""

    architecture, model_type = "MarianMTModel", "marian"
    two_embeddings, offset, start = True, 0, "<pad>"
    computed = staticmethod(marian_sinusoids)
    usual = {"normalize_before": False, "add_final_layer_norm": False, "normalize_embedding": False}

    def shares(self, config: Config) -> bool:
        """See :class:`Seq2SeqClass`."""
        return config.flag("share_encoder_decoder_embeddings", True)


class Bart(Seq2SeqClass):
    """``BartForConditionalGeneration``."""

    architecture, model_type = "BartForConditionalGeneration", "bart"
    norms = {f"{side}.layernorm_embedding": f"model.{side}.layernorm_embedding" for side in SIDES}
    values = {"layernorm_embedding": (True,)}
    usual = {"normalize_before": False, "add_final_layer_norm": False, "normalize_embedding": True}


class MBart(Bart):
    """``MBartForConditionalGeneration``."""

    architecture, model_type = "MBartForConditionalGeneration", "mbart"
    norms = {**Bart.norms, **{f"{side}.layer_norm": f"model.{side}.layer_norm" for side in SIDES}}
    values = {**Bart.values, **NORMS_FIRST}
    usual = {"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": True}


class M2M100(Seq2SeqClass):
    """``M2M100ForConditionalGeneration``, which computes fairseq's sinusoids itself."""

    architecture, model_type = "M2M100ForConditionalGeneration", "m2m_100"
    norms = {f"{side}.layer_norm": f"model.{side}.layer_norm" for side in SIDES}
    values, encodings, tables, bias = NORMS_FIRST, ("sinusoidal",), {}, None
    activation, scales = "relu", True

    def settings(self, config: Config) -> Settings:
        """See :class:`Seq2SeqClass`; its first position follows the number of padding."""
        config.one_of("pad_token_id", 1, (1,))
        if config.get("decoder_start_token_id", None) == 1:
            raise UsageError(
                f"{config.path}: decoder_start_token_id is 1, that of padding, which has no "
                "position in this class"
            )
        return super().settings(config)
