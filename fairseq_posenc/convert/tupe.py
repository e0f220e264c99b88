"""TUPE as its authors released it, in checkpoints of fairseq 0.9.

TUPE, Ke, He, Liu, arXiv 2006.15595.  Row 0 of their position table holds p_θ1 (section 3.3), and
position t is row t + 1.  In TUPE-R the relative part has separate values for [CLS], in two rows of
its table that no distance uses; this corresponds to ``--cls-reset each``.  Their dictionary starts
with seven special symbols, fairseq's with four: the other three become lines of dict.txt.
"""

import os
from argparse import Namespace
from typing import Any, Dict, List, NamedTuple, Optional

from fairseq import utils
from torch import Tensor

from fairseq_posenc.convert.base import ForeignModel, Format, Imported
from fairseq_posenc.convert.dictionary import SPECIAL, Vocabulary, renumber
from fairseq_posenc.convert.native import (
    CLASSIFICATION_HEADS,
    EMBEDDING,
    ENCODER,
    LM_HEAD,
    Settings,
)
from fairseq_posenc.convert.reader import ForeignParameters, Reader
from fairseq_posenc.convert.released_pickle import read_released
from fairseq_posenc.convert.tupe_reference import released_logits
from fairseq_posenc.errors import UsageError

_LEADING = ("<s>", "<pad>", "</s>", "<unk>", "<file>", "<email>", "<url>")
_STACK = "decoder.sentence_encoder."
_BIAS = ENCODER + "position_bias."
_POSITIONS = _STACK + "pos.weight"
_RELATIVE = _STACK + "relative_attention_bias.weight"

#: Released and fairseq's names of modules with a weight and a bias.
_OUTSIDE = (
    (_STACK + "pos_ln", _BIAS + "tupe.norm"),
    ("decoder.lm_head.dense", LM_HEAD + "dense"),
    ("decoder.lm_head.layer_norm", LM_HEAD + "layer_norm"),
)
_OPTIONAL = (
    (_STACK + "emb_layer_norm", ENCODER + "layernorm_embedding"),
    (_STACK + "emb_out_layer_norm", ENCODER + "layer_norm"),
)
_LAYER = ("self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm")


#: Flags of the released code with the same name and meaning here, and their defaults there.
_FLAGS: Dict[str, Any] = {
    "encoder_layers": 12,
    "encoder_embed_dim": 768,
    "encoder_ffn_embed_dim": 3072,
    "encoder_attention_heads": 12,
    "activation_fn": "gelu",
    "pooler_activation_fn": "tanh",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.0,
    "pooler_dropout": 0.1,
}


class Released(NamedTuple):
    """A released checkpoint.

    Args:
        path: the file.
        flags: those of :data:`_FLAGS` and ``encoder_normalize_before``, by name.
        parameters: by their released names.
    """

    path: str
    flags: Dict[str, Any]
    parameters: ForeignParameters


def open_released(path: str) -> Released:
    """Load a checkpoint.

    Raises:
        UsageError: it is not a TUPE checkpoint.
    """
    checkpoint = read_released(path)
    checkpoint = checkpoint if isinstance(checkpoint, dict) else {}
    args: Optional[Namespace] = checkpoint.get("args")
    parameters: Optional[ForeignParameters] = checkpoint.get("model")
    if args is None or not parameters:
        raise UsageError(f"{path}: is not a checkpoint of fairseq 0.9 (it has no args or no model)")
    if _POSITIONS not in parameters:
        raise UsageError(
            f"{path}: has no {_POSITIONS}, the position table, so it is not a TUPE checkpoint"
        )
    defaults = {**_FLAGS, "encoder_normalize_before": False}
    given = vars(args)
    flags = {name: given.get(name, default) for name, default in defaults.items()}
    if flags["activation_fn"] not in utils.get_available_activation_fns():
        raise UsageError(
            f"{path}: activation_fn {flags['activation_fn']!r} is not one that fairseq has"
        )
    return Released(path, flags, parameters)


def read_vocabulary(path: str, vocab: Optional[str]) -> Vocabulary:
    """Read the dictionary of a checkpoint: dict.txt after seven special symbols, <mask> last.

    Args:
        path: the checkpoint.
        vocab: its dict.txt, if that is not beside it.

    Raises:
        UsageError: the dictionary is missing or damaged.
    """
    path = vocab or os.path.join(os.path.dirname(path), "dict.txt")
    symbols, counts = list(_LEADING), [1] * len(_LEADING)
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                symbol, _, count = line.rstrip("\n").rpartition(" ")
                if not symbol or not count.isdigit():
                    raise UsageError(
                        f"{path}: line {number} is {line.rstrip()!r}, but every line of a "
                        "dictionary is a symbol, a space and a count"
                    )
                symbols.append(symbol)
                counts.append(int(count))
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"{path}: the dictionary cannot be read ({error}); if it is elsewhere, give it "
            "with --vocab"
        ) from error
    source = f"{path} with TUPE's {len(_LEADING) + 1} special symbols"
    return renumber([*symbols, "<mask>"], {s: s for s in SPECIAL}, source, [*counts, 1])


def read(released: Released, vocabulary: Vocabulary) -> Imported:
    """Settings and parameters of TUPE, for :class:`Format`."""
    reader = Reader(released.path, released.parameters, vocabulary)
    settings = _settings(released, reader)
    reader.move_rows(_STACK + "embed_tokens.weight", EMBEDDING)
    reader.move_rows("decoder.lm_head.bias", LM_HEAD + "bias")
    # a copy of the embedding, and a constant saved by an early version
    reader.drop("decoder.lm_head.weight", _STACK + "rp_bucket")
    _encoder(reader, settings)
    notes = [
        f"classification head {name}; --verify compares the tokens' logits only"
        for name in _heads(reader, settings)
    ]
    reader.finish("args in the same file")
    return Imported(settings, reader.parameters, reader.origin, notes=notes)


def foreign(released: Released, order: Tensor) -> ForeignModel:
    """The model computed from its formulas."""
    logits = released_logits(released.parameters, released.flags)

    def reordered(tokens: Tensor, segments: Tensor) -> Tensor:
        return logits(order[tokens])[..., order]

    return ForeignModel(
        reordered, "the released model's formulas in float64 (its own code needs fairseq 0.9)"
    )


def _settings(released: Released, reader: Reader) -> Settings:
    """The flags of the model."""
    relative = _RELATIVE in reader
    return {
        **{name: released.flags[name] for name in _FLAGS},
        "position_encoding": "tupe+t5" if relative else "tupe",
        "untie_cls": True,
        "cls_reset": "each" if relative else "sum",
        "encoder_normalize_before": _STACK + "emb_out_layer_norm.weight" in reader,
        "layernorm_embedding": _STACK + "emb_layer_norm.weight" in reader,
        "max_positions": len(reader.rest[_POSITIONS]) - 1,
    }


def _encoder(reader: Reader, settings: Settings) -> None:
    """Move everything between the embedding and the head."""
    for theirs, ours in _OUTSIDE:
        reader.move_module(theirs, ours)
    for theirs, ours in _OPTIONAL:
        if theirs + ".weight" in reader:
            reader.move_module(theirs, ours)
    table = reader.take(_POSITIONS)
    reader.put(_BIAS + "tupe.cls.weight", table[:1].clone(), _POSITIONS)
    reader.put(_BIAS + "tupe.table.weight", table[1:].clone(), _POSITIONS)
    projections = [_BIAS + "tupe.q_proj", _BIAS + "tupe.k_proj"]
    if _STACK + "pos_proj.weight" in reader:  # an early version had both in one tensor
        for kind in ("weight", "bias"):
            reader.split(f"{_STACK}pos_proj.{kind}", projections, kind)
    else:
        for name, ours in zip(("pos_q_linear", "pos_k_linear"), projections):
            reader.move_module(_STACK + name, ours)
    if _RELATIVE in reader:
        values = reader.take(_RELATIVE)
        number = len(values) - 1
        theta = values[[number // 2, number]]  # from [CLS], to [CLS]
        reader.put(_BIAS + "t5.table.weight", values[:number].clone(), _RELATIVE)
        reader.put(_BIAS + "theta", theta, _RELATIVE)
        settings["t5_num_buckets"] = number
        settings["t5_max_distance"] = 128
    for layer in range(settings["encoder_layers"]):
        theirs, ours = f"{_STACK}layers.{layer}.", f"{ENCODER}layers.{layer}."
        for name in _LAYER:
            reader.move_module(theirs + name, ours + name)
        parts = [f"{ours}self_attn.{name}_proj" for name in "qkv"]
        for kind in ("weight", "bias"):
            reader.split(f"{theirs}self_attn.in_proj_{kind}", parts, kind)


def _heads(reader: Reader, settings: Settings) -> List[str]:
    """Move the classification heads, which keep their names; returns the names."""
    keys = [key for key in reader.rest if key.startswith(CLASSIFICATION_HEADS)]
    heads = list(dict.fromkeys(key[: key.index(".", len(CLASSIFICATION_HEADS))] for key in keys))
    for head in heads:
        reader.move_module(head + ".out_proj", head + ".out_proj")
        if head + ".dense.weight" in reader:
            reader.move_module(head + ".dense", head + ".dense")
            continue
        # an early version had no dense layer
        reader.put_identity(head + ".dense", settings["encoder_embed_dim"], head)
        settings["pooler_activation_fn"] = "linear"
    settings["load_checkpoint_heads"] = bool(heads)
    return [head[len(CLASSIFICATION_HEADS) :] for head in heads]


TUPE = Format(
    name="tupe",
    summary="a checkpoint of TUPE's released code, with its dict.txt beside it",
    open=open_released,
    vocabulary=read_vocabulary,
    read=read,
    foreign=foreign,
)
