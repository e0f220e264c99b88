"""GAU-alpha as its released classes save it: masked language models and sequence classifiers.

"Implementation and Experiments for GAU-based Model", Liu, sections 4.1 and 5.1.  ``softmax_plus``,
``softmax`` and ``squared_relu`` divide by √s and by the number of real tokens.  Models without
``attention_scale`` do not divide by √s; on import, the queries' scale is multiplied by it instead.

A classifier is a single projection of the first position; the additional dense layer of fairseq's
head becomes the identity.
"""

import math
from typing import Optional

from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange import released_formulas as formulas
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import ForeignModel, Imported, Importer, register_format
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.agreement import agreed, move_output
from fairseq_posenc.exchange.reader import Reader, Vocabulary, read_vocabulary
from fairseq_posenc.models import kinds
from fairseq_posenc.models.presets import GAU, RELEASED

BASE = "gau_alpha."
_CLASSIFIER = "GAUAlphaForSequenceClassification"
_LAYER = {
    "gau.i_dense.weight": "in_proj.weight",
    "gau.o_dense.weight": "out_proj.weight",
    "gau.q_scaleoffset.weight": "q_scale",
    "gau.k_scaleoffset.weight": "k_scale",
}


class GAUAlphaImporter(Importer):
    """Reads a folder of GAU-alpha's masked language model or sequence classifier."""

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        folder, vocabulary = hf.open_folder(path, "gau_alpha"), read_vocabulary(path, vocab)
        config = folder.config
        name = _class_of(config)
        settings = _settings(config)
        _check_padding(config, vocabulary)

        rows = (BASE + hf.TOKENS, hf.DECODER + "weight")
        folder, notes = agreed(folder, vocabulary, rows, "hidden_size")
        reader = hf.reader_of(folder, vocabulary, BASE)
        for layer in range(settings["encoder_layers"]):
            for theirs, ours in _LAYER.items():
                reader.move(
                    f"{BASE}encoder.layer.{layer}.{theirs}",
                    f"{kinds.ENCODER}layers.{layer}.self_attn.{ours}",
                )
        if not config.one_of("attention_scale", True, (True, False)):
            notes.append(
                "attention_scale is false: γ_q was multiplied by √s, to undo the division by √s"
            )
            for key in [key for key in reader.parameters if key.endswith("q_scale")]:
                reader.parameters[key] = reader.parameters[key] * math.sqrt(
                    settings["gau_key_size"]
                )
        head = kinds.SENTENCE_HEAD if name == _CLASSIFIER else None
        if head is None:
            settings["untie_weights_roberta"] = move_output(folder, reader, BASE)
        else:
            _classifier(config, reader, settings)
            notes.append(config.classes_note(head))
        reader.finish(f"config.json ({name})")
        settings["load_checkpoint_heads"] = head is not None
        foreign = _reference(folder, vocabulary.order)
        return Imported(
            settings, reader.parameters, reader.origin, vocabulary, foreign, head, notes
        )


def _reference(folder: hf.Folder, order: Tensor) -> ForeignModel:
    """The model computed from its formulas."""
    parameters, classifies = folder.parameters, _class_of(folder.config) == _CLASSIFIER
    if classifies:
        last = formulas.first_position(
            parameters["classifier.weight"], parameters["classifier.bias"]
        )
    else:
        last = formulas.tied_head(hf.output_weight(folder, BASE))
    released = formulas.released_logits(
        formulas.gated_layer, BASE, parameters, folder.config.entries, last
    )
    return formulas.by_formulas(released, order, not classifies)


def _class_of(config: Config) -> str:
    return config.architecture(["GAUAlphaForMaskedLM", _CLASSIFIER])


def _settings(config: Config) -> kinds.Settings:
    """The flags of the model."""
    layers, key_size = config.size("num_hidden_layers"), config.size("attention_key_size")
    channels, width = config.size("hidden_size"), config.size("intermediate_size")
    config.one_of("use_bias", False, (False,))
    config.one_of("hidden_act", "swish", ("swish", "silu"))
    config.one_of("embedding_size", channels, (channels,))
    expansion, rest = divmod(width, channels)
    if rest:
        raise UsageError(
            f"{config.path}: intermediate_size {width} is not a multiple of hidden_size "
            f"{channels}, as --gau-expansion requires"
        )
    return {
        **GAU,
        **RELEASED,
        "encoder_layers": layers,
        "encoder_embed_dim": channels,
        "encoder_input_dim": channels,
        "gau_key_size": key_size,
        "gau_expansion": expansion,
        "gau_normaliser": config.one_of(
            "normalization", "softmax_plus", tuple(formulas.NORMALISERS)
        ),
        "gau_divisor": "n*s",
        "gau_length": "visible",
        "gau_reference_length": 512,
        "layer_norm_eps": config.fraction("layer_norm_eps", 1e-12),
        "dropout": config.fraction("hidden_dropout_prob", 0.1),
        "attention_dropout": config.fraction("attention_probs_dropout_prob", 0.1),
        "pooler_dropout": config.fraction("classifier_dropout", 0.1),
        "max_positions": config.length("max_position_embeddings", 512),
        "num_segments": config.size("type_vocab_size", 2),
    }


def _check_padding(config: Config, vocabulary: Vocabulary) -> None:
    """Refuse a ``pad_token_id`` other than the vocabulary's, since the padding mask uses it."""
    number, padding = int(vocabulary.order[kinds.PAD]), config.get("pad_token_id", 0)
    if padding != number:
        raise UsageError(
            f"{config.path}: pad_token_id is {padding}, but the padding symbol of "
            f"{vocabulary.source} is number {number}"
        )


def _classifier(config: Config, reader: Reader, settings: kinds.Settings) -> None:
    """Import the head of a sequence classifier that reads the unprojected first position."""
    config.one_of("summary_type", "last", ("first",))
    config.one_of("summary_use_proj", False, (False,))
    config.one_of("summary_activation", "", ("",))
    target = kinds.CLASSIFICATION_HEADS + kinds.SENTENCE_HEAD
    reader.put_identity(target + ".dense", settings["encoder_embed_dim"], "classifier")
    reader.move_module("classifier", target + ".out_proj")
    settings["pooler_activation_fn"] = "linear"


register_format(
    "gau-alpha",
    summary="a folder of GAU-alpha's masked language model or sequence classifier",
    importer=GAUAlphaImporter(),
)
