"""Writing a RoFormer of ours as transformers' classes want it."""

from typing import Any, Dict, Optional, Tuple

import torch

from fairseq_posenc.convert import huggingface
from fairseq_posenc.convert.base import Exported, State
from fairseq_posenc.convert.native import (
    CLASSIFICATION_HEADS,
    EMBEDDING,
    ENCODER,
    LM_HEAD,
    TOKEN_HEADS,
    NativeCheckpoint,
)
from fairseq_posenc.convert.pairing import half_to_interleaved
from fairseq_posenc.convert.roformer_names import (
    ARCHITECTURES,
    BASE,
    DECODER,
    LM_BIAS,
    SEGMENTS,
    TABLE,
    Architecture,
    classifier,
    names_of,
    reference_for,
    sine_table,
    token_classifier,
)
from fairseq_posenc.errors import UsageError, flag_of


def write(checkpoint: NativeCheckpoint, head: Optional[str], path: str) -> Exported:
    """Write a folder that the stock classes load.

    Args:
        checkpoint: a masked language model of ours.
        head: the classification or token head to take along, None for the language-model head.
        path: an existing empty folder.

    Raises:
        UsageError: the stock classes cannot express the model.
    """
    settings = checkpoint.settings
    name, architecture = _choose(checkpoint, head)
    _refuse_what_they_lack(checkpoint, name)
    symbols, order = huggingface.vocabulary_order(checkpoint.symbols, checkpoint.dictionary)
    ours = _interleaved(checkpoint)
    projected = settings["encoder_input_dim"] != settings["encoder_embed_dim"]
    names = names_of(settings["encoder_layers"], projected, architecture)
    state = {theirs: ours.pop(mine) for mine, theirs in names.items()}
    embedding = ours.pop(EMBEDDING)
    state[BASE + "embeddings.word_embeddings.weight"] = embedding[order]
    segments = ours.pop(SEGMENTS, embedding.new_zeros(2, embedding.size(1)))
    state[BASE + "embeddings.token_type_embeddings.weight"] = segments
    head_dim = settings["encoder_embed_dim"] // settings["encoder_attention_heads"]
    state[TABLE] = sine_table(settings["max_positions"], head_dim)
    if architecture.language_model:
        bias = ours.pop(LM_HEAD + "bias")[order]
        state[LM_BIAS] = bias
        if settings["untie_weights_roberta"]:
            state[DECODER + "weight"] = ours[LM_HEAD + "weight"][order]
            state[DECODER + "bias"] = bias.clone()
    odd = [key for key in ours if not key.startswith((LM_HEAD, CLASSIFICATION_HEADS, TOKEN_HEADS))]
    if odd:
        raise UsageError(f"{checkpoint.path}: {name} has no place for {odd[0]}")
    huggingface.write_folder(path, _config(checkpoint, name, state), state, symbols)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order))
    notes = ["vocab.txt lists the dictionary; text has to be split into it as it was for training"]
    return Exported(reference_for(path, name, inverse), f"{name} of transformers", head, notes)


def _choose(checkpoint: NativeCheckpoint, head: Optional[str]) -> Tuple[str, Architecture]:
    """The class for *head*, and what it puts on the encoder."""
    if head is None:
        name = "RoFormerForCausalLM" if checkpoint.settings["causal"] else "RoFormerForMaskedLM"
        return name, ARCHITECTURES[name]
    if head in checkpoint.heads(TOKEN_HEADS):
        name, architecture = "RoFormerForTokenClassification", token_classifier(head)
    else:
        name, architecture = "RoFormerForSequenceClassification", classifier(head)
    return name, architecture


def _refuse_what_they_lack(checkpoint: NativeCheckpoint, name: str) -> None:
    settings = checkpoint.settings
    activation = settings["activation_fn"]
    wanted = {
        "position_encoding": "rotary",
        "rotary_base": 10000.0,
        "rotary_fraction": 1.0,
        "rotary_scaling": "none",
        "encoder_normalize_before": False,
        "layernorm_embedding": True,
        "layer": "transformer",
        "attention": "softmax",
        "norm": "layer",
        "no_bias": False,
        "lm_head": "roberta",
        "spectral_norm_classification_head": False,
    }
    if name == "RoFormerForSequenceClassification":
        wanted["pooler_activation_fn"] = activation  # both are their hidden_act
    for key, value in wanted.items():
        if settings.get(key, value) != value:
            flag = flag_of(key)
            raise UsageError(
                f"{checkpoint.path}: was trained with {flag} {settings[key]}, and {name} of "
                f"transformers has only {value}"
            )


def _interleaved(checkpoint: NativeCheckpoint) -> State:
    """The parameters, with interleaved pairs."""
    settings, state = checkpoint.settings, dict(checkpoint.state)
    if settings["rotary_pairing"] == "interleaved":
        return state
    heads = settings["encoder_attention_heads"]
    turned = ["q_proj", "k_proj"] + (["v_proj"] if settings["rotary_value"] else [])
    for layer in range(settings["encoder_layers"]):
        prefix = f"{ENCODER}layers.{layer}.self_attn."
        for key in [f"{prefix}{name}.{kind}" for name in turned for kind in ("weight", "bias")]:
            state[key] = half_to_interleaved(state[key], heads)
        if settings["rotary_value"]:  # what comes out of the heads is in the order of the values
            key = prefix + "out_proj.weight"
            state[key] = half_to_interleaved(state[key].t(), heads).t()
    return state


def _config(checkpoint: NativeCheckpoint, name: str, state: State) -> Dict[str, Any]:
    settings = checkpoint.settings
    config: Dict[str, Any] = {
        "architectures": [name],
        "model_type": "roformer",
        "embedding_size": settings["encoder_input_dim"],
        "hidden_size": settings["encoder_embed_dim"],
        "num_hidden_layers": settings["encoder_layers"],
        "num_attention_heads": settings["encoder_attention_heads"],
        "intermediate_size": settings["encoder_ffn_embed_dim"],
        "hidden_act": huggingface.activation_for(settings["activation_fn"], checkpoint.path),
        "hidden_dropout_prob": settings["dropout"],
        "attention_probs_dropout_prob": settings["attention_dropout"],
        "max_position_embeddings": settings["max_positions"],
        "type_vocab_size": len(state[BASE + "embeddings.token_type_embeddings.weight"]),
        "layer_norm_eps": settings["layer_norm_eps"],
        "rotary_value": settings["rotary_value"],
        "is_decoder": settings["causal"],
        "tie_word_embeddings": DECODER + "weight" not in state,
        "initializer_range": 0.02,
        "torch_dtype": "float32",
    }
    if name.endswith("Classification"):
        last = "classifier.out_proj.weight"
        classes = len(state[last if last in state else "classifier.weight"])
        config["id2label"] = {str(number): f"LABEL_{number}" for number in range(classes)}
        config["label2id"] = {f"LABEL_{number}": number for number in range(classes)}
    return config
