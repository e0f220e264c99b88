"""TUPE as its authors released it, in checkpoints of fairseq 0.9.

TUPE, Ke, He, Liu, arXiv 2006.15595.  Row 0 of their position table holds p_θ1 (section 3.3), and
position t is row t + 1.  In TUPE-R the relative part has separate values for [CLS], in two rows of
its table that no distance uses; this corresponds to ``--cls-reset each``.  Their dictionary starts
with seven special symbols, fairseq's with four: the other three become lines of dict.txt.
"""

import math
import os
from argparse import Namespace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from fairseq import utils
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.checkpoints.reading import check_tensors, load_file
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import (
    ForeignModel,
    Imported,
    Importer,
    Logits,
    register_format,
)
from fairseq_posenc.exchange.reader import SPECIAL, ForeignParameters, Reader, Vocabulary, renumber
from fairseq_posenc.exchange.released_formulas import ReleasedTUPE
from fairseq_posenc.models import kinds

_LEADING = ("<s>", "<pad>", "</s>", "<unk>", "<file>", "<email>", "<url>")
_STACK = "decoder.sentence_encoder."
_BIAS = kinds.ENCODER + "position_bias."
_POSITIONS = _STACK + "pos.weight"
_TOKENS, _OUTPUT = _STACK + "embed_tokens.weight", "decoder.lm_head.weight"
_RELATIVE = _STACK + "relative_attention_bias.weight"

#: Released and fairseq's names of modules with a weight and a bias.
_OUTSIDE = (
    (_STACK + "pos_ln", _BIAS + "tupe.norm"),
    ("decoder.lm_head.dense", kinds.LM_HEAD + "dense"),
    ("decoder.lm_head.layer_norm", kinds.LM_HEAD + "layer_norm"),
)
_OPTIONAL = (
    (_STACK + "emb_layer_norm", kinds.ENCODER + "layernorm_embedding"),
    (_STACK + "emb_out_layer_norm", kinds.ENCODER + "layer_norm"),
)
_LAYER = ("self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm")


def _activation(args: Config, name: str, default: str) -> str:
    return args.one_of(name, default, utils.get_available_activation_fns())


#: Flags of the released code with the same name and meaning here: their defaults there and checks.
_FLAGS: Dict[str, Tuple[Any, Callable[..., Any]]] = {
    "encoder_layers": (12, Config.size),
    "encoder_embed_dim": (768, Config.size),
    "encoder_ffn_embed_dim": (3072, Config.size),
    "encoder_attention_heads": (12, Config.size),
    "activation_fn": ("gelu", _activation),
    "pooler_activation_fn": ("tanh", _activation),
    "dropout": (0.1, Config.fraction),
    "attention_dropout": (0.1, Config.fraction),
    "activation_dropout": (0.0, Config.fraction),
    "pooler_dropout": (0.1, Config.fraction),
    "encoder_normalize_before": (False, Config.flag),
}
#: Constants of the released code, which later versions of it turned into flags.
_CONSTANTS: Dict[str, Tuple[Any, Callable[..., Any]]] = {
    "rel_pos_bins": (32, Config.size),
    "max_rel_pos": (128, Config.size),
    "attn_scale_factor": (2, Config.factor),
}


_METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter")
#: Classes that checkpoints of fairseq 0.9 refer to; its training statistics are not used.
_STAND_INS: Dict[str, object] = {
    "argparse.Namespace": Namespace,
    **{f"fairseq.meters.{name}": type(name, (), {}) for name in _METERS},
}


class Released(NamedTuple):
    """A released checkpoint."""

    path: str  # the file
    flags: Dict[str, Any]  # the values of :data:`_FLAGS` and :data:`_CONSTANTS`, by name
    parameters: ForeignParameters  # the parameters, by their released names


def open_released(path: str) -> Released:
    """Load a checkpoint.

    Raises:
        UsageError: it is not a TUPE checkpoint.
    """
    checkpoint = load_file(path, stand_ins=_STAND_INS)
    checkpoint = checkpoint if isinstance(checkpoint, dict) else {}
    args, model = checkpoint.get("args"), checkpoint.get("model")
    if not isinstance(args, Namespace) or not model:
        raise UsageError(f"{path}: is not a checkpoint of fairseq 0.9 (it has no args or no model)")
    parameters = check_tensors(model, path)
    if _POSITIONS not in parameters or parameters[_POSITIONS].dim() != 2:
        raise UsageError(
            f"{path}: has no {_POSITIONS}, the position table, so it is not a TUPE checkpoint"
        )
    config = Config(f"{path}: args", vars(args))
    known = {**_FLAGS, **_CONSTANTS}
    flags = {name: read(config, name, default) for name, (default, read) in known.items()}
    return Released(path, flags, parameters)


def read_vocabulary(path: str, vocab: Optional[str]) -> Vocabulary:
    """Read the dictionary of a checkpoint: dict.txt after seven special symbols, <mask> last.

    Args:
        vocab: its dict.txt, if that is not beside it.

    Raises:
        UsageError: the dictionary is missing or damaged.
    """
    path = vocab or os.path.join(os.path.dirname(path), "dict.txt")
    subject = f"{path}: the dictionary, which --vocab gives if it is elsewhere,"
    symbols, counts = list(_LEADING), [1] * len(_LEADING)
    for number, line in enumerate(read_lines(path, subject), 1):
        symbol, _, count = line.rpartition(" ")
        if not symbol or not count.isdecimal():
            raise UsageError(
                f"{path}: line {number} is {line!r}, but every line of a dictionary is a symbol, a "
                "space and a count"
            )
        symbols.append(symbol)
        counts.append(int(count))
    source = f"{path} with TUPE's {len(_LEADING) + 1} special symbols"
    return renumber([*symbols, "<mask>"], {s: s for s in SPECIAL}, source, [*counts, 1])


class TUPEImporter(Importer):
    """Reads a checkpoint of TUPE's released code."""

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        released, vocabulary = open_released(path), read_vocabulary(path, vocab)
        reader = Reader(released.path, released.parameters, vocabulary)
        settings = _settings(released, reader)
        reader.move_rows(_TOKENS, kinds.EMBEDDING)
        reader.move_rows("decoder.lm_head.bias", kinds.LM_HEAD + "bias")
        table = released.parameters[_TOKENS]
        if not torch.equal(released.parameters.get(_OUTPUT, table), table):
            raise UsageError(
                f"{path}: {_OUTPUT} is not {_TOKENS}, though the released code has one matrix for "
                "both"
            )
        reader.drop(_OUTPUT, _STACK + "rp_bucket")  # the latter is a constant of an early version
        _encoder(released, reader, settings)
        notes = [f"classification head {name}" for name in _heads(reader, settings)]
        if _rescale(released, reader.parameters, settings):
            notes.append(
                f"attn_scale_factor is {released.flags['attn_scale_factor']}: queries were "
                "multiplied by a constant, to undo the division by √(2D)"
            )
        reader.finish("args in the same file")
        foreign = _reference(released, vocabulary.order)
        return Imported(
            settings, reader.parameters, reader.origin, vocabulary, foreign, notes=notes
        )


def _reference(released: Released, order: Tensor) -> ForeignModel:
    """The model computed from its formulas."""
    model = ReleasedTUPE(released.parameters, released.flags)

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        return model.logits(order[tokens])[..., order]

    def classes(head: str) -> Logits:
        return lambda tokens, segments: model.classes(order[tokens], head)

    return ForeignModel(
        logits,
        "the released model's formulas in float64 (its own code needs fairseq 0.9)",
        {head: classes(head) for head in _head_names(released.parameters)},
    )


def _settings(released: Released, reader: Reader) -> kinds.Settings:
    """The flags of the model."""
    relative = _RELATIVE in reader
    return {
        **{name: released.flags[name] for name in _FLAGS},
        "position_encoding": "tupe+t5" if relative else "tupe",
        "untie_cls": True,
        "cls_reset": "each" if relative else "sum",
        "encoder_normalize_before": _STACK + "emb_out_layer_norm.weight" in reader,
        "layernorm_embedding": _STACK + "emb_layer_norm.weight" in reader,
        "max_positions": reader.rest[_POSITIONS].size(0) - 1,
    }


def _encoder(released: Released, reader: Reader, settings: kinds.Settings) -> None:
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
        number = released.flags["rel_pos_bins"]
        if values.dim() != 2 or len(values) != number + 1:
            raise UsageError(
                f"{released.path}: args.rel_pos_bins is {number}, which makes {number + 1} rows, "
                f"but {_RELATIVE} has size {' x '.join(map(str, values.shape))}"
            )
        theta = values[[number // 2, number]]  # from [CLS], to [CLS]
        reader.put(_BIAS + "t5.table.weight", values[:number].clone(), _RELATIVE)
        reader.put(_BIAS + "theta", theta, _RELATIVE)
        settings["t5_num_buckets"] = number
        settings["t5_max_distance"] = released.flags["max_rel_pos"]
    for layer in range(settings["encoder_layers"]):
        theirs, ours = f"{_STACK}layers.{layer}.", f"{kinds.ENCODER}layers.{layer}."
        for name in _LAYER:
            reader.move_module(theirs + name, ours + name)
        parts = [f"{ours}self_attn.{name}_proj" for name in "qkv"]
        for kind in ("weight", "bias"):
            reader.split(f"{theirs}self_attn.in_proj_{kind}", parts, kind)


def _heads(reader: Reader, settings: kinds.Settings) -> List[str]:
    """Move the classification heads, which keep their names; returns the names."""
    names = _head_names(reader.rest)
    for head in (kinds.CLASSIFICATION_HEADS + name for name in names):
        reader.move_module(head + ".out_proj", head + ".out_proj")
        if head + ".dense.weight" in reader:
            reader.move_module(head + ".dense", head + ".dense")
            continue
        # an early version had no dense layer
        reader.put_identity(head + ".dense", settings["encoder_embed_dim"], head)
        settings["pooler_activation_fn"] = "linear"
    settings["load_checkpoint_heads"] = bool(names)
    return names


def _head_names(parameters: ForeignParameters) -> List[str]:
    """The names of the classification heads."""
    start = len(kinds.CLASSIFICATION_HEADS)
    names = [key[start:] for key in parameters if key.startswith(kinds.CLASSIFICATION_HEADS)]
    return list(dict.fromkeys(name.split(".")[0] for name in names))


def _rescale(released: Released, parameters: kinds.Parameters, settings: kinds.Settings) -> bool:
    """Multiply all queries so that dividing by √(2D), as here, gives the released logits.

    The released code divides by √(aD), where a is ``attn_scale_factor``.

    Returns:
        whether that was necessary.
    """
    factor = math.sqrt(2 / released.flags["attn_scale_factor"])
    if factor == 1:
        return False
    layers = [
        f"{kinds.ENCODER}layers.{n}.self_attn.q_proj" for n in range(settings["encoder_layers"])
    ]
    for name in [*layers, _BIAS + "tupe.q_proj"]:
        for key in (name + ".weight", name + ".bias"):
            parameters[key] = parameters[key] * factor
    return True


register_format(
    "tupe",
    summary="a checkpoint of TUPE's released code, with its dict.txt beside it",
    importer=TUPEImporter(),
)
