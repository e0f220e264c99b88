"""RoFormer as ``transformers`` saves it.

Imported are masked and causal language models, sequence and token classifiers, with
``rotary_value`` and ``embedding_size`` other than ``hidden_size``, too; exported are models with
``--position-encoding rotary`` that the stock classes can express.

Their pairs are interleaved as ours are by default; ``half`` is reordered on the way out.  Their
table of sines has no counterpart here and is left out, after a check that it is the usual one.
Token types become segments.  Classes of a sequence classifier go through ``hidden_act``, where
fairseq has an activation of its own, ``--pooler-activation-fn``.
"""

from typing import Any, Dict, List, Optional, Tuple

from fairseq_posenc.convert import huggingface
from fairseq_posenc.convert.base import Format, Imported
from fairseq_posenc.convert.dictionary import renumber
from fairseq_posenc.convert.hf_config import (
    architecture_of,
    classes_note,
    config_of,
    need_numbers,
    untied,
)
from fairseq_posenc.convert.huggingface import Folder
from fairseq_posenc.convert.native import EMBEDDING, LM_HEAD
from fairseq_posenc.convert.reader import Reader
from fairseq_posenc.convert.roformer_export import write
from fairseq_posenc.convert.roformer_names import (
    ARCHITECTURES,
    BASE,
    DECODER,
    LM_BIAS,
    SEGMENTS,
    UNUSED,
    check_version,
    drop_table,
    names_of,
    reference_for,
)
from fairseq_posenc.errors import UsageError


def read(path: str, vocab: Optional[str]) -> Imported:
    """Read a folder.

    Args:
        path: the folder.
        vocab: its vocab.txt, if that lies elsewhere.

    Raises:
        UsageError: a file is missing or of another kind, sizes do not agree, or the model has
            something that ours does not.
    """
    folder = huggingface.read_folder(path, "roformer")
    check_version(folder, "hf-roformer")
    name = architecture_of(folder, list(ARCHITECTURES))
    settings = settings_of(folder)
    settings["pooler_activation_fn"] = settings["activation_fn"]
    symbols, special, source = huggingface.read_vocabulary(path, vocab)
    vocabulary = renumber(symbols, special, source)

    reader = Reader(folder.weights, folder.state)
    reader.move_rows(BASE + "embeddings.word_embeddings.weight", EMBEDDING, vocabulary)
    reader.move(BASE + "embeddings.token_type_embeddings.weight", SEGMENTS)
    architecture = ARCHITECTURES[name]
    projected = settings["encoder_input_dim"] != settings["encoder_embed_dim"]
    for ours, theirs in names_of(settings["encoder_layers"], projected, architecture).items():
        reader.move(theirs, ours)
    if architecture.language_model:
        bias, own_weight = _output_bias(folder)
        reader.move_rows(bias, LM_HEAD + "bias", vocabulary)
        if own_weight:
            reader.move_rows(DECODER + "weight", LM_HEAD + "weight", vocabulary)
        reader.drop(DECODER, LM_BIAS)
        settings["untie_weights_roberta"] = own_weight
    drop_table(reader)
    unused = reader.drop(*UNUSED)
    reader.finish(f"config.json ({name})")
    settings["load_checkpoint_heads"] = architecture.head is not None
    return Imported(
        settings,
        reader.state,
        reader.origin,
        vocabulary,
        reference_for(path, name, vocabulary.order),
        f"{name} of transformers",
        architecture.head,
        [f"left out {key}, on which nothing depends" for key in unused]
        + _labels(folder, architecture.head),
    )


def settings_of(folder: Folder) -> Dict[str, Any]:
    """Flags that describe the encoder in *folder*.

    Raises:
        UsageError: a number is missing, or ours has not what an entry asks for.
    """
    config = folder.config
    need_numbers(
        folder, "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"
    )
    if config.get("add_cross_attention"):
        raise UsageError(
            f"{config_of(folder)}: add_cross_attention: this is half of an encoder-decoder"
        )
    dropout = config.get("hidden_dropout_prob", 0.1)
    return {
        "position_encoding": "rotary",
        "rotary_value": bool(config.get("rotary_value", False)),
        "encoder_layers": config["num_hidden_layers"],
        "encoder_embed_dim": config["hidden_size"],
        "encoder_input_dim": config.get("embedding_size") or config["hidden_size"],
        "encoder_ffn_embed_dim": config["intermediate_size"],
        "encoder_attention_heads": config["num_attention_heads"],
        "encoder_normalize_before": False,
        "layernorm_embedding": True,
        "layer_norm_eps": config.get("layer_norm_eps", 1e-12),
        "activation_fn": huggingface.activation_of(folder),
        "dropout": dropout,
        "pooler_dropout": dropout,
        "attention_dropout": config.get("attention_probs_dropout_prob", 0.1),
        "activation_dropout": 0.0,
        "max_positions": config.get("max_position_embeddings", 1536),
        "num_segments": config.get("type_vocab_size", 2),
        "causal": bool(config.get("is_decoder", False)),
    }


def _output_bias(folder: Folder) -> Tuple[str, bool]:
    """Name of the output's bias, and whether the output has a weight of its own, too."""
    own = untied(
        folder,
        (DECODER + "weight", BASE + "embeddings.word_embeddings.weight"),
        (DECODER + "bias", LM_BIAS),
    )
    bias = DECODER + "bias" if own and DECODER + "bias" in folder.state else LM_BIAS
    return bias, own and DECODER + "weight" in folder.state


def _labels(folder: Folder, head: Optional[str]) -> List[str]:
    if head is None:
        return []
    untrained = f"its language-model head is untrained: {folder.path} has none"
    return [untrained, classes_note(folder, head)]


HF_ROFORMER = Format(
    name="hf-roformer",
    summary="a folder of transformers' RoFormer classes",
    read=read,
    write=write,
)
