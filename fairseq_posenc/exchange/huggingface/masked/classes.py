"""The classes of transformers for masked language models: which they hold, and their config.json.

learned positions, norms after residuals, biases     RobertaForMaskedLM and its classifiers
rotary, norms first, gated feed-forward, windows     ModernBertForMaskedLM and its classifiers
"""

from typing import Any, Dict

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.encoder_heads import Architecture
from fairseq_posenc.exchange.huggingface.masked import names
from fairseq_posenc.exchange.huggingface.masked.base import MaskedClass
from fairseq_posenc.exchange.huggingface.masked.modernbert import ModernBert
from fairseq_posenc.models import kinds
from fairseq_posenc.models.kinds import PAD, Settings


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
        rows = config.length("max_position_embeddings") - padding_of(config) - 1
        if rows < 1:
            raise UsageError(
                f"{config.path}: max_position_embeddings is {rows + padding_of(config) + 1}, but "
                f"positions begin behind pad_token_id {padding_of(config)}; none is left"
            )
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
            "max_positions": rows,
            "num_positions": rows,
        }


def padding_of(config: Config) -> int:
    """The number of the padding symbol in config.json."""
    number = config.get("pad_token_id", PAD)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise UsageError(f"{config.path}: pad_token_id is {number!r}; it must be a whole number")
    return number


#: The classes by the names of their formats.
CLASSES: Dict[str, MaskedClass] = {"hf-roberta": Roberta(), "hf-modernbert": ModernBert()}
