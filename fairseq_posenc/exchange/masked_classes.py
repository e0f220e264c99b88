"""The classes of transformers for masked language models: which they hold, and their config.json.

learned positions, norms after residuals, biases     RobertaForMaskedLM and its classifiers
"""

from typing import Any, Collection, Dict, Mapping, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange import encoder_heads, kinds
from fairseq_posenc.exchange import huggingface as hf
from fairseq_posenc.exchange import masked_names as names
from fairseq_posenc.exchange.causal_names import Names
from fairseq_posenc.exchange.encoder_heads import Architecture
from fairseq_posenc.exchange.formats import Expressible
from fairseq_posenc.exchange.kinds import PAD, Parameters, Settings
from fairseq_posenc.exchange.reader import Config, ForeignParameters

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
    #: settings of any value that it has, beside :data:`_READ`, and other settings with the values
    #: that it has
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

    def absent(self, settings: Settings) -> Collection[str]:
        """The weights that its layers do not have, though :attr:`names` lists them."""
        return ()

    def adapted(self, parameters: Parameters, settings: Settings) -> Parameters:
        """Our parameters, in the order of channels that it has."""
        return parameters

    def completed(self, state: ForeignParameters) -> ForeignParameters:
        """Its parameters, with those that ours lack."""
        return state

    def lm_biased(self, config: Config) -> bool:
        """Whether its output layer has a bias."""
        return True

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
        found: Settings = {ours: config.size(theirs) for ours, theirs in self.sizes.items()}
        found["encoder_input_dim"] = found["encoder_embed_dim"]
        return {**found, "layer_norm_eps": config.factor(*self.epsilon)}


class Roberta(MaskedClass):
    """``RobertaForMaskedLM``, whose positions begin behind the number of the padding symbol.

    Its output layer has GELU, and its classifier the hyperbolic tangent, whatever config.json says.
    """

    prefix, model_type, names = "Roberta", "roberta", names.ROBERTA
    lm = {
        kinds.LM_HEAD + "dense": "lm_head.dense",
        kinds.LM_HEAD + "layer_norm": "lm_head.layer_norm",
    }
    lm_bias = ("lm_head.bias", "lm_head.decoder.bias")
    segments = "roberta.embeddings.token_type_embeddings.weight"
    read = ("activation_fn", "num_segments", "segments")
    values = {"position_encoding": ("learned",)}
    lm_values = {"activation_fn": ("gelu",)}
    head_values = {"pooler_activation_fn": ("tanh",)}
    epsilon = ("layer_norm_eps", 1e-12)
    inputs = ("input_ids", "token_type_ids", "attention_mask")

    def entries(self, settings: Settings, built: Architecture, path: str) -> Dict[str, Any]:
        """See :class:`MaskedClass`."""
        return {
            **super().entries(settings, built, path),
            "hidden_act": hf.activation_for(settings["activation_fn"], path),
            "hidden_dropout_prob": settings["dropout"],
            "attention_probs_dropout_prob": settings["attention_dropout"],
            "classifier_dropout": settings["pooler_dropout"],
            "type_vocab_size": settings["num_segments"] or 1,
        }

    def settings(self, config: Config, built: Architecture) -> Settings:
        """See :class:`MaskedClass`."""
        config.one_of("position_embedding_type", "absolute", ("absolute",))
        activation = hf.activation_of(config)
        if built.language_model and activation != "gelu":
            raise UsageError(
                f"{config.path}: hidden_act is {config.entries['hidden_act']}, and the output "
                "layer of the class has GELU; activations that differ cannot be imported"
            )
        dropout, segments = config.fraction("hidden_dropout_prob", 0.1), "type_vocab_size"
        return {
            **super().settings(config, built),
            "position_encoding": "learned",
            "activation_fn": activation,
            "pooler_activation_fn": "tanh",
            "dropout": dropout,
            "attention_dropout": config.fraction("attention_probs_dropout_prob", 0.1),
            "activation_dropout": 0.0,
            "pooler_dropout": config.fraction("classifier_dropout", dropout),
            "num_segments": 0 if config.size(segments, 2) == 1 else config.size(segments, 2),
            "max_positions": config.size("max_position_embeddings") - padding_of(config) - 1,
        }


def padding_of(config: Config) -> int:
    """The number of the padding symbol in config.json."""
    number = config.get("pad_token_id", PAD)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise UsageError(f"{config.path}: pad_token_id is {number!r}; it must be a whole number")
    return number


#: The classes by the names of their formats.
CLASSES: Dict[str, MaskedClass] = {"hf-roberta": Roberta()}
