"""Random models that classes of transformers can represent: one model per row of EXPRESSED.

Embedding and head sizes are powers of four, so that scaling by their square roots is exact.
"""

from pathlib import Path
from typing import Any, Dict, NamedTuple, Tuple

import torch
from torch import Tensor

from fairseq_posenc.checkpoints.reading import read_checkpoint, write_checkpoint
from fairseq_posenc.exchange import FORMATS, native, transfer
from fairseq_posenc.exchange.huggingface.translation import marian_sinusoids
from fairseq_posenc.models.kinds import (
    CAUSAL,
    MASKED,
    PAD,
    SENTENCE_HEAD,
    TRANSLATION,
    Kind,
    kind_of,
)

WORDS = [f"w{number}" for number in range(40)]
#: The longest text, in tokens.
LONGEST = 80


def table_of(name: str) -> Any:
    """The conversion table of a registered class of transformers."""
    importer: Any = FORMATS[name].importer
    return importer.source


class Expressed(NamedTuple):
    """A model that a class of transformers can represent."""

    target: str  # the format
    settings: Dict[str, Any]  # settings in addition to SIZES
    heads: Tuple[str, ...] = ()  # its classification heads
    model_kind: Any = None  # None: the usual kind of the class

    @property
    def kind(self) -> Kind:
        kind: Kind = self.model_kind or table_of(self.target).kind
        return kind


def _side(side: str) -> Dict[str, Any]:
    sizes = {"layers": 2, "embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 4}
    sizes.update({"input_dim": 16, "output_dim": 16} if side == "decoder" else {})
    return {f"{side}_{name}": size for name, size in sizes.items()}


#: The size settings of each kind of model.
SIZES: Dict[str, Dict[str, Any]] = {
    CAUSAL.name: {
        **_side("decoder"),
        **dict.fromkeys(("max_target_positions", "tokens_per_sample"), LONGEST),
    },
    MASKED.name: {
        **_side("encoder"),
        "encoder_input_dim": 16,
        "max_positions": LONGEST,
        "position_encoding": "rotary",
    },
    TRANSLATION.name: {
        **_side("encoder"),
        **_side("decoder"),
        **dict.fromkeys(("max_source_positions", "max_target_positions"), LONGEST),
    },
}
#: Rates of dropout that no class has by default.
RATES = {
    **{"dropout": 0.23, "attention_dropout": 0.17, "activation_dropout": 0.13},
    "pooler_dropout": 0.19,
}
#: For each class, the dropout rates that its config.json can hold.
HAS_PLACE = {
    "hf-llama": ["attention_dropout"],
    **dict.fromkeys(("hf-gpt-neox", "hf-bloom", "hf-gpt2"), ["dropout", "attention_dropout"]),
    "hf-roberta": ["dropout", "attention_dropout", "pooler_dropout"],
    "hf-roformer": ["dropout", "attention_dropout"],
    "hf-modernbert": list(RATES),
    **dict.fromkeys(
        ("hf-marian", "hf-bart", "hf-mbart", "hf-m2m100"),
        ["dropout", "attention_dropout", "activation_dropout"],
    ),
    "hf-t5": ["dropout"],
}

FIRST = {"decoder_normalize_before": True}
ROTARY = {**FIRST, "position_encoding": "rotary"}
LLAMA = {**ROTARY, "norm": "rms", "no_bias": True, "feed_forward": "swiglu"}
SCALED = {"rotary_scaling_factor": 4.0, "rotary_original_length": 10, "rotary_factors": "1,1.5"}
_SCALED = {name: x for name, x in SCALED.items() if name != "rotary_factors"}
LEARNED = {"position_encoding": "learned"}
_BOTH_FIRST = {**FIRST, "encoder_normalize_before": True}
_SHARED = {"share_all_embeddings": True, "share_decoder_input_output_embed": True}
_T5 = {**_BOTH_FIRST, **_SHARED, "position_encoding": "t5", "norm": "rms", "no_bias": True}
_BART = {**_SHARED, **LEARNED, "layernorm_embedding": True}
_MODERN = {
    **{"encoder_normalize_before": True, "skip_first_norm": True, "feed_forward": "geglu"},
    **{"attention": "local", "local_window": "160,8"},
}
_LM = {
    **{"position_encoding": "rotary", "lm_head": "roberta", "no_scale_embedding": True},
    **{"layernorm_embedding": True, "share_decoder_input_output_embed": True},
    "activation_fn": "gelu",
}

EXPRESSED: Dict[str, Expressed] = {
    "llama": Expressed("hf-llama", LLAMA),
    "grouped": Expressed("hf-llama", {**LLAMA, "kv_heads": 2, "rotary_pairing": "half"}),
    "llama geglu": Expressed("hf-llama", {**LLAMA, "feed_forward": "geglu", "no_bias": False}),
    "untied": Expressed("hf-llama", {**LLAMA, "share_decoder_input_output_embed": False}),
    "tied": Expressed(
        "hf-llama", {**LLAMA, "share_decoder_input_output_embed": True, "no_scale_embedding": True}
    ),
    **{
        rule: Expressed("hf-llama", {**LLAMA, "rotary_scaling": rule, **_SCALED})
        for rule in ("linear", "ntk", "yarn", "yarn_untruncated", "llama3")
    },
    "documents": Expressed(
        "hf-llama", {**LLAMA, "document_mask": True, "position_separators": "</s></s>"}
    ),
    "longrope": Expressed("hf-llama", {**LLAMA, "rotary_scaling": "longrope", **SCALED}),
    "neox": Expressed("hf-gpt-neox", {**ROTARY, "activation_fn": "gelu", "rotary_base": "500"}),
    "share": Expressed("hf-gpt-neox", {**ROTARY, "rotary_fraction": 0.5, "layer_norm_eps": 1e-3}),
    "bloom": Expressed(
        "hf-bloom",
        {
            **{**FIRST, "position_encoding": "alibi", "activation_fn": "gelu_accurate"},
            **{"layernorm_embedding": True, "decoder_ffn_embed_dim": 64},
        },
    ),
    "gpt2": Expressed(
        "hf-gpt2",
        {
            **{**FIRST, **LEARNED, "activation_fn": "gelu_accurate"},
            **{"share_decoder_input_output_embed": True, "no_scale_embedding": True},
        },
    ),
    "roberta": Expressed("hf-roberta", {**LEARNED, "num_segments": 0}),
    "segments": Expressed(
        "hf-roberta", {**LEARNED, "num_segments": 2, "untie_weights_roberta": True}
    ),
    "sentences": Expressed("hf-roberta", {**LEARNED, "activation_fn": "relu"}, (SENTENCE_HEAD,)),
    "modernbert": Expressed("hf-modernbert", {**_MODERN, "no_bias": True, "pooler_norm": True}),
    "bases": Expressed(
        "hf-modernbert",
        {
            **{**_MODERN, "encoder_layers": 3, "local_window": "160,4,4"},
            "rotary_base": "500,100*2",
        },
    ),
    "no windows": Expressed(
        "hf-modernbert",
        {"encoder_normalize_before": True, "skip_first_norm": True, "feed_forward": "swiglu"},
    ),
    "roformer": Expressed("hf-roformer", {"pooler_activation_fn": "gelu"}),
    "values": Expressed(
        "hf-roformer",
        {
            **{"position_encoding": "rotary", "rotary_pairing": "half", "rotary_value": True},
            **{"num_segments": 1, "encoder_input_dim": 8},
        },
    ),
    "causal": Expressed(
        "hf-roformer",
        {
            **{"position_encoding": "rotary", "activation_fn": "gelu_fast", "causal": True},
            **{"untie_weights_roberta": True, "layer_norm_eps": 1e-3},
        },
    ),
    "roformer lm": Expressed(
        "hf-roformer", {**_LM, "rotary_pairing": "half", "num_segments": 3}, (), CAUSAL
    ),
    "marian": Expressed("hf-marian", {**_SHARED, **LEARNED}),
    "bart": Expressed("hf-bart", {**_BART, "activation_fn": "gelu"}),
    "unscaled": Expressed("hf-bart", {**_BART, "no_scale_embedding": True, "decoder_layers": 1}),
    "mbart": Expressed("hf-mbart", {**_BART, **_BOTH_FIRST}),
    "m2m100": Expressed("hf-m2m100", {**_SHARED, **_BOTH_FIRST, "position_encoding": "sinusoidal"}),
    "t5": Expressed(
        "hf-t5", {**_T5, "t5_num_buckets": 16, "t5_max_distance": 40, "activation_fn": "gelu"}
    ),
    "swiglu": Expressed("hf-t5", {**_T5, "feed_forward": "swiglu", "no_scale_embedding": True}),
    "geglu": Expressed("hf-t5", {**_T5, "feed_forward": "geglu", "layer_norm_eps": 1e-6}),
    "glu": Expressed("hf-t5", {**_T5, "feed_forward": "glu", "activation_fn": "gelu_accurate"}),
}
EXPRESSED = {  # without rows that set flags of a missing pack
    name: row
    for name, row in EXPRESSED.items()
    if row.settings.keys() <= row.kind.family.dataclass.__dataclass_fields__.keys()
}


#: The first row of each class.
FIRST_ROWS = {row.target: name for name, row in reversed([*EXPRESSED.items()])}

SHAPE = {
    **{"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 24},
    **{"encoder_attention_heads": 2, "max_positions": 40, "position_encoding": "rotary"},
}


def trained(folder, *heads, kind=MASKED, words=("a", "b"), **settings):
    """Write a random checkpoint and its dictionary; masked language models get SHAPE."""
    settings = {**SHAPE, **settings} if kind is MASKED else settings
    folder.mkdir()
    for name in ("dict.txt", *(f"dict.{language}.txt" for language in kind.languages)):
        (folder / name).write_text("".join(f"{word} 1\n" for word in words), "utf-8")
    checkpoint = transfer.new_checkpoint(settings, str(folder), kind)
    model = transfer.build(checkpoint, str(folder / "dict.txt"), kind)
    for name in heads:
        model.register_classification_head(name, 3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    checkpoint["model"] = model.state_dict()
    write_checkpoint(checkpoint, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"


def checkpoint_of(folder, name, words=WORDS, **changes):
    """Write a random checkpoint of a row; no weight is 0 or 1, so that lost weights are noticed.

    Args:
        folder: the folder to create.
        name: the row's name in EXPRESSED.
        words: the words of the dictionary.
        changes: settings that differ from the row.
    """
    row = EXPRESSED[name]
    given = {**SIZES[row.kind.name], **RATES, **row.settings, **changes}
    if row.target == "hf-t5":
        given = {**given, **dict.fromkeys(("attention_dropout", "activation_dropout"), 0.23)}
    path = trained(folder, *row.heads, kind=row.kind, words=words, **given)
    if row.target == "hf-marian" and not changes:  # Marian's positions are always its own sinusoids
        state = torch.load(path)
        for side in ("encoder", "decoder"):
            table = state["model"][f"{side}.embed_positions.weight"]
            table[PAD + 1 :] = marian_sinusoids(LONGEST, 16)
        torch.save(state, path)
    return path


def load(path: Path) -> Any:
    """Load our model, with its classification heads, from a checkpoint."""
    kind: Any = kind_of(read_checkpoint(str(path))["cfg"]["model"]["_name"])
    return native.load(str(path), str(path.parent / "dict.txt"), kind)


def started(tokens: Tensor) -> Tensor:
    """The decoder's input for translations (B, T): ``</s>``, then all tokens but the last."""
    return torch.cat((torch.full_like(tokens[:, :1], 2), tokens[:, :-1]), dim=1)


def logits_of(model: Any, row: Expressed, tokens: Tensor) -> Tensor:
    """Our model's logits; for translation, *tokens* are both the source and the target."""
    if row.kind is TRANSLATION:
        logits: Tensor = model(tokens, tokens.ne(PAD).sum(1), started(tokens))[0]
        return logits
    return model(tokens, **({"classification_head_name": row.heads[0]} if row.heads else {}))[0]
