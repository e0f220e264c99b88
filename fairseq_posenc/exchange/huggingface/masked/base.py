"""The description of a class of transformers for masked language models."""

from typing import Any, Collection, Dict, Mapping, Tuple

import torch
from torch import Tensor

from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import Expressible, ForeignModel
from fairseq_posenc.exchange.huggingface import encoder_heads
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.encoder_heads import Architecture
from fairseq_posenc.exchange.huggingface.names import Names
from fairseq_posenc.exchange.reader import ForeignParameters
from fairseq_posenc.models import kinds
from fairseq_posenc.models.kinds import PAD, Parameters, Settings

#: Settings that are read from the model itself, or matter in training alone.
_READ = (
    *("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads"),
    *("max_positions", "num_positions", "layer_norm_eps", "untie_weights_roberta"),
    *("rotary_scaling_factor", "rotary_original_length"),  # matter with --rotary-scaling alone
)


class MaskedClass:
    """A class of transformers for encoders, with its output layer and its classifiers."""

    #: start of the names of its architectures, and its name in config.json
    prefix: str
    model_type: str
    #: where its parameters are
    names: Names
    #: modules of the output layer, by our names, and the names of its bias: the usual one first,
    #: then that of a model whose output is not its embedding
    lm: Mapping[str, str]
    lm_bias: Tuple[str, ...]
    #: the embedding of segments, if it has one
    segments = ""
    #: settings, beside :data:`_READ`, of which the class can express every value; and other
    #: settings with the values that the class can express
    read: Collection[str] = ()
    values: Mapping[str, Collection[Any]]
    #: the same of the output layer, and of classification heads, where these are fixed
    lm_values: Mapping[str, Collection[Any]] = {}
    head_values: Mapping[str, Collection[Any]] = {}
    #: the entries of config.json for sizes and ε, by our settings
    sizes: Mapping[str, str] = {
        "encoder_layers": "num_hidden_layers",
        "encoder_embed_dim": "hidden_size",
        "encoder_attention_heads": "num_attention_heads",
        "encoder_ffn_embed_dim": "intermediate_size",
    }
    epsilon: Tuple[str, float]
    #: the inputs that it reads
    inputs: Tuple[str, ...] = ("input_ids", "attention_mask")

    def classifier(self, head: str) -> Architecture:
        """The modules of a sequence classifier."""
        return encoder_heads.classifier(head)

    def token_classifier(self, head: str) -> Architecture:
        """The modules of a token classifier."""
        return encoder_heads.token_classifier(head)

    @property
    def architectures(self) -> Dict[str, Architecture]:
        """The modules of each class, by its name."""
        return {
            f"{self.prefix}ForMaskedLM": self.language_model,
            f"{self.prefix}ForSequenceClassification": self.classifier(kinds.SENTENCE_HEAD),
            f"{self.prefix}ForTokenClassification": self.token_classifier(encoder_heads.TOKEN_HEAD),
        }

    @property
    def language_model(self) -> Architecture:
        """The modules of the output layer."""
        return Architecture(dict(self.lm), encoder_heads.CLASSIFIER_SETTINGS)

    def expressible(self, name: str, settings: Settings, built: Architecture) -> Expressible:
        """The settings that it has.

        Args:
            name: its architecture.
            settings: complete settings.
            built: what is on top of the encoder.
        """
        fixed = self.lm_values if built.language_model else self.head_values
        values = {**self.values, "encoder_input_dim": (settings["encoder_embed_dim"],), **fixed}
        free = [each for each in (*_READ, *self.read, *built.unused) if each not in values]
        return Expressible(f"{name} of transformers", free, values)

    def reference(self, path: str, name: str, built: Architecture, order: Tensor) -> ForeignModel:
        """The logits of a folder, computed by transformers.

        Args:
            path: the folder.
            name: its architecture.
            built: what is on top of the encoder.
            order: transformers' number of each symbol of fairseq's dictionary, (V,).
        """

        def logits(tokens: Tensor, segments: Tensor) -> Tensor:
            model: Any = hf.load_model(path, name)
            inputs: Dict[str, Tensor] = {}
            if "token_type_ids" in self.inputs:
                inputs["token_type_ids"] = segments
            with torch.no_grad():
                mask = tokens.ne(PAD).long()
                out = model(input_ids=order[tokens], attention_mask=mask, **inputs).logits
            return out[..., order] if built.language_model else out

        return ForeignModel(logits, f"{name} of transformers")

    def absent(self, settings: Settings) -> Collection[str]:
        """The weights that its layers do not have, though :attr:`names` lists them."""
        return ()

    def adapted(self, parameters: Parameters, settings: Settings) -> Parameters:
        """Our parameters, in the order of channels that it has."""
        return parameters

    def finish(self, state: ForeignParameters, entries: Dict[str, Any]) -> None:
        """Adapt parameters and entries to each other, in place."""

    def entries(self, settings: Settings, built: Architecture, path: str) -> Dict[str, Any]:
        """Its entries of config.json.

        Args:
            settings: complete settings, which it can hold.
            built: what is on top of the encoder.
            path: the checkpoint, for messages.

        Raises:
            UsageError: it cannot hold a combination of settings.
        """
        return {
            **{theirs: settings[ours] for ours, theirs in self.sizes.items()},
            self.epsilon[0]: settings["layer_norm_eps"],
        }

    def settings(self, config: Config, built: Architecture) -> Settings:
        """The flags of a model, given its config.json.

        Args:
            config: config.json.
            built: what is on top of the encoder.

        Raises:
            UsageError: an entry is missing, or has a value that cannot be imported.
        """
        config.one_of("is_decoder", False, (False,))
        config.one_of("add_cross_attention", False, (False,))
        found: Settings = config.sizes(self.sizes)
        found["encoder_input_dim"] = found["encoder_embed_dim"]
        return {**found, "layer_norm_eps": config.factor(*self.epsilon)}
