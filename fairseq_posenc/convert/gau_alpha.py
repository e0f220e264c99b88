"""GAU-alpha as its released classes save it: masked language models and sequence classifiers.

"Implementation and Experiments for GAU-based Model", Liu, sections 4.1 and 5.1.  ``softmax_plus``,
``softmax`` and ``squared_relu`` divide by √s and by the number of tokens that are no padding;
``attention_scale`` false leaves √s out; the queries' scale then makes up for ours.

A classifier is one projection of the first position; fairseq's head has a dense layer before it,
which becomes the identity.
"""

import math
from typing import Any, Dict, Optional

from torch import Tensor

from fairseq_posenc.convert import huggingface
from fairseq_posenc.convert.base import Format, Imported, Reference
from fairseq_posenc.convert.dictionary import Vocabulary, renumber
from fairseq_posenc.convert.hf_config import (
    SENTENCE_HEAD,
    architecture_of,
    classes_note,
    config_of,
    move_output,
    need_numbers,
    one_of,
)
from fairseq_posenc.convert.huggingface import Folder
from fairseq_posenc.convert.native import CLASSIFICATION_HEADS, EMBEDDING, ENCODER, PAD
from fairseq_posenc.convert.reader import Reader
from fairseq_posenc.convert.simple_reference import (
    NORMALISERS,
    first_position,
    gated_layer,
    released_logits,
    tied_head,
)
from fairseq_posenc.errors import UsageError
from fairseq_posenc.models.masked_lm import RELEASED
from fairseq_posenc.models.presets import GAU

BASE = "gau_alpha."
_WORDS = BASE + "embeddings.word_embeddings.weight"
_DECODER = "cls.predictions.decoder.weight"
_CLASSIFIER = "GAUAlphaForSequenceClassification"
_LAYER = {
    "gau.i_dense.weight": "in_proj.weight",
    "gau.o_dense.weight": "out_proj.weight",
    "gau.q_scaleoffset.weight": "q_scale",
    "gau.k_scaleoffset.weight": "k_scale",
}


def read(path: str, vocab: Optional[str]) -> Imported:
    """Read a folder.

    Args:
        path: the folder.
        vocab: its vocab.txt, if that lies elsewhere.

    Raises:
        UsageError: a file is missing or of another kind, sizes do not agree, or the model has
            something that ours does not.
    """
    folder = huggingface.read_folder(path, "gau_alpha")
    name = architecture_of(folder, ["GAUAlphaForMaskedLM", _CLASSIFIER])
    head = SENTENCE_HEAD if name == _CLASSIFIER else None
    settings = _settings(folder)
    symbols, special, source = huggingface.read_vocabulary(path, vocab)
    vocabulary = renumber(symbols, special, source)
    _check_padding(folder, vocabulary)

    reader = Reader(folder.weights, folder.state)
    reader.move_rows(_WORDS, EMBEDDING, vocabulary)
    reader.move(BASE + "embeddings.token_type_embeddings.weight", ENCODER + "embed_segments.weight")
    for layer in range(settings["encoder_layers"]):
        for theirs, ours in _LAYER.items():
            reader.move(
                f"{BASE}encoder.layer.{layer}.{theirs}", f"{ENCODER}layers.{layer}.self_attn.{ours}"
            )
    notes = []
    if not one_of(folder, "attention_scale", True, (True, False)):
        notes.append("attention_scale is false: γ_q was multiplied by √s, which undoes our 1/√s")
        for key in [key for key in reader.state if key.endswith("q_scale")]:
            reader.state[key] = reader.state[key] * math.sqrt(settings["gau_key_size"])
    if head is None:
        separate = move_output(folder, reader, _DECODER, _WORDS, vocabulary)
        settings["untie_weights_roberta"] = separate
    else:
        _classifier(folder, reader, settings)
        notes.append(classes_note(folder, head))
    reader.finish(f"config.json ({name})")
    settings["load_checkpoint_heads"] = head is not None
    return Imported(
        settings,
        reader.state,
        reader.origin,
        vocabulary,
        _reference(folder, vocabulary, head),
        "the released model's formulas in float64 (transformers has no such class)",
        head,
        notes,
    )


def _settings(folder: Folder) -> Dict[str, Any]:
    """Flags that describe the model in *folder*."""
    config = folder.config
    need_numbers(
        folder, "hidden_size", "num_hidden_layers", "intermediate_size", "attention_key_size"
    )
    one_of(folder, "use_bias", False, (False,))
    one_of(folder, "hidden_act", "swish", ("swish", "silu"))
    one_of(folder, "embedding_size", config["hidden_size"], (config["hidden_size"],))
    expansion, rest = divmod(config["intermediate_size"], config["hidden_size"])
    if rest:
        raise UsageError(
            f"{config_of(folder)}: intermediate_size {config['intermediate_size']} is no multiple "
            f"of hidden_size {config['hidden_size']}, as --gau-expansion has to be"
        )
    return {
        **GAU,
        **RELEASED,
        "encoder_layers": config["num_hidden_layers"],
        "encoder_embed_dim": config["hidden_size"],
        "encoder_input_dim": config["hidden_size"],
        "gau_key_size": config["attention_key_size"],
        "gau_expansion": expansion,
        "gau_normaliser": one_of(folder, "normalization", "softmax_plus", tuple(NORMALISERS)),
        "gau_divisor": "n*s",
        "gau_length": "visible",
        "gau_reference_length": 512,
        "layer_norm_eps": config.get("layer_norm_eps", 1e-12),
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "attention_dropout": config.get("attention_probs_dropout_prob", 0.1),
        "pooler_dropout": config.get("classifier_dropout", 0.1),
        "max_positions": config.get("max_position_embeddings", 512),
        "num_segments": config.get("type_vocab_size", 2),
    }


def _check_padding(folder: Folder, vocabulary: Vocabulary) -> None:
    """Refuse another ``pad_token_id`` than the vocabulary's: the released mask comes from it."""
    number = int(vocabulary.order[PAD])
    if folder.config.get("pad_token_id", 0) != number:
        raise UsageError(
            f"{config_of(folder)}: pad_token_id is {folder.config['pad_token_id']}, but the "
            f"padding symbol of {vocabulary.source} is number {number}"
        )


def _classifier(folder: Folder, reader: Reader, settings: Dict[str, Any]) -> None:
    """The head of a sequence classifier, whose summary has to be the first position as it is."""
    one_of(folder, "summary_type", "last", ("first",))
    one_of(folder, "summary_use_proj", False, (False,))
    one_of(folder, "summary_activation", "", ("",))
    target = CLASSIFICATION_HEADS + SENTENCE_HEAD
    reader.put_identity(target + ".dense", settings["encoder_embed_dim"], "classifier")
    reader.move_module("classifier", target + ".out_proj")
    settings["pooler_activation_fn"] = "linear"


def _reference(folder: Folder, vocabulary: Vocabulary, head: Optional[str]) -> Reference:
    """Logits from the formulas, of our tokens and in our order."""
    state, order = folder.state, vocabulary.order

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        if head is None:
            last = tied_head(state[_DECODER if _DECODER in state else _WORDS])
        else:
            last = first_position(state["classifier.weight"], state["classifier.bias"])
        released = released_logits(gated_layer, BASE, state, folder.config, last)
        out = released(order[tokens], segments, tokens.ne(PAD))
        return out[..., order] if head is None else out

    return logits


GAU_ALPHA = Format(
    name="gau-alpha",
    summary="a folder of GAU-alpha's masked language model or sequence classifier",
    read=read,
)
