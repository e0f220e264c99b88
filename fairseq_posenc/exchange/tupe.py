"""Import of TUPE as its authors released it, in checkpoints of fairseq 0.9.

TUPE, Ke, He, Liu, arXiv 2006.15595.  Row 0 of the released position table holds p_θ1 (section 3.3);
row t + 1 belongs to position t.  In TUPE-R, two rows of the table of relative biases belong to
[CLS] instead of a distance; this corresponds to ``--cls-reset each``.  The released dictionary
begins with seven special symbols; the three that fairseq lacks become lines of dict.txt.
"""

import math
import os
from argparse import Namespace
from typing import Any, Dict, List, Optional

from fairseq import utils

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import read_dictionary
from fairseq_posenc.checkpoints.reading import check_tensors, load_file
from fairseq_posenc.exchange.formats import (
    ForeignModel,
    Imported,
    Importer,
    Logits,
    register_format,
)
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import read_class
from fairseq_posenc.exchange.huggingface.entries import rate
from fairseq_posenc.exchange.huggingface.texts import Texts
from fairseq_posenc.exchange.reader import (
    SPECIAL,
    Config,
    ForeignParameters,
    Reader,
    Vocabulary,
    renumber,
    size_of,
)
from fairseq_posenc.exchange.released_formulas import ReleasedTUPE
from fairseq_posenc.models import kinds

_LEADING = ("<s>", "<pad>", "</s>", "<unk>", "<file>", "<email>", "<url>")
_STACK, _HEAD = "decoder.sentence_encoder.", "decoder.lm_head."
_POSITIONS, _RELATIVE = _STACK + "pos.weight", _STACK + "relative_attention_bias.weight"
_BIAS = "position_bias."
_TABLE, _Q = kinds.ENCODER + _BIAS, _BIAS + "tupe.q_proj"
#: The flag for the factor a in the logits' divisor √(aD); only later versions of TUPE have it.
_SCALE = "attn_scale_factor"
_BUCKETS = (
    t.entry("rel_pos_bins", ("t5_num_buckets",), usual=32),
    t.entry("max_rel_pos", ("t5_max_distance",), Config.length, 128),
)
#: Stand-ins for the classes in checkpoints of fairseq 0.9; the statistics in meters are not used.
_STAND_INS: Dict[str, object] = {
    "argparse.Namespace": Namespace,
    **{
        f"fairseq.meters.{name}": type(name, (), {})
        for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")
    },
}


def _same(name: str, usual: Any, checked: Any = Config.size) -> t.Group:
    """The entry for a flag that has the same name and meaning in the released code and here."""
    return t.entry(name, (name,), checked, usual)


def _activation(args: Config, name: str, usual: str) -> str:
    return args.one_of(name, usual, utils.get_available_activation_fns())


def _heads(parameters: ForeignParameters) -> List[str]:
    """The names of the classification heads, with the prefix ``classification_heads.``."""
    start = len(kinds.CLASSIFICATION_HEADS)
    names = [key[: key.index(".", start)] for key in parameters if key.startswith("classif")]
    return list(dict.fromkeys(names))


class _Texts(Texts):
    """The vocabulary of TUPE: seven special symbols, the symbols of dict.txt, and <mask>."""

    def read(self, path: str, file: Optional[str], config: Config) -> Vocabulary:
        """See :class:`~fairseq_posenc.exchange.huggingface.texts.Texts`."""
        path = file or os.path.join(os.path.dirname(path), "dict.txt")
        if not os.path.isfile(path):
            raise UsageError(f"{path}: there is no such dictionary; give one with --vocab")
        found = read_dictionary(path, adds_mask=False)
        symbols = [*_LEADING, *found.symbols[found.nspecial :], "<mask>"]
        counts = [1] * len(_LEADING) + [*found.count[found.nspecial :], 1]
        source = f"{path} with TUPE's {len(_LEADING) + 1} special symbols"
        return renumber(symbols, {name: name for name in SPECIAL}, source, counts)


def _class_of(parameters: ForeignParameters) -> t.TransformersClass:
    """The table that describes a checkpoint; its content depends on which parameters exist."""
    relative = _RELATIVE in parameters
    normed = _STACK + "emb_layer_norm.weight" in parameters
    outside = [t.Joint(_STACK + "pos_ln", (_BIAS + "tupe.norm",))]
    if normed:
        outside.append(t.Joint(_STACK + "emb_layer_norm", ("layernorm_embedding",)))
    last = t.Joint(
        _STACK + "emb_out_layer_norm",
        (t.LAST_NORM,),
        when=lambda settings, number: bool(settings["encoder_normalize_before"]),
    )
    projections = (_Q, _BIAS + "tupe.k_proj")
    if _STACK + "pos_proj.weight" in parameters:  # an early version joined them in one tensor
        outside.append(t.Joint(_STACK + "pos_proj", projections, t.IN_ROWS))
    else:
        names = zip("qk", projections)
        outside += [t.Joint(f"{_STACK}pos_{side}_linear", (ours,)) for side, ours in names]
    modules = {kinds.LM_HEAD + name: _HEAD + name for name in ("dense", "layer_norm")}
    for head in _heads(parameters):
        parts = [f"{head}.{part}" for part in ("out_proj", "dense")]
        modules.update({name: name for name in parts if f"{name}.weight" in parameters})
    return t.TransformersClass(
        "tupe",
        {"TUPE": t.Architecture(modules)},
        kinds.MASKED,
        stacks=(
            t.Stack(
                kinds.ENCODER,
                _STACK + "layers.{}.",
                (
                    t.Joint("self_attn.in_proj_", (t.Q, t.K, t.V), t.IN_ROWS),
                    t.Joint("self_attn.out_proj", (t.OUT,)),
                    *t.same(t.FC1, t.FC2, t.NORM_1, t.NORM_2),
                ),
                _STACK + "embed_tokens.weight",
                (*outside, last),
            ),
        ),
        entries=(
            _same("encoder_layers", 12),
            _same("encoder_embed_dim", 768),
            _same("encoder_ffn_embed_dim", 3072),
            _same("encoder_attention_heads", 12),
            _same("activation_fn", "gelu", _activation),
            _same("pooler_activation_fn", "tanh", _activation),
            *(rate(name, name, usual=0.1) for name in ("dropout", "attention_dropout")),
            rate("activation_dropout", "activation_dropout"),
            rate("pooler_dropout", "pooler_dropout", usual=0.1),
            _same("encoder_normalize_before", False, Config.flag),
            t.entry(_SCALE, (), Config.factor, 2),
            *(_BUCKETS if relative else ()),
        ),
        always={
            "position_encoding": "tupe+t5" if relative else "tupe",
            "untie_cls": True,
            "cls_reset": "each" if relative else "sum",
            "layernorm_embedding": normed,
            "max_positions": len(parameters[_POSITIONS]) - 1,
        },
        output=_HEAD + "weight",
        output_biases=(_HEAD + "bias",),
        unused=(_STACK + "rp_bucket",),  # a constant of an early version
        texts=_Texts(),
        padded=False,
        after_reading=_read_positions,
    )


def _read_positions(reader: Reader, settings: kinds.Settings, config: Config) -> List[str]:
    """Move the tables of positions, complete the heads, and scale queries for our divisor √(2D)."""
    table = reader.take(_POSITIONS)
    reader.put(_TABLE + "tupe.cls.weight", table[:1].clone(), _POSITIONS)
    reader.put(_TABLE + "tupe.table.weight", table[1:].clone(), _POSITIONS)
    number = settings.get("t5_num_buckets")
    if number is not None:
        values = reader.take(_RELATIVE)
        if values.dim() != 2 or len(values) != number + 1:
            raise UsageError(
                f"{config.path}.rel_pos_bins is {number}, which requires {number + 1} rows, but "
                f"{_RELATIVE} has size {size_of(values)}"
            )
        reader.put(_TABLE + "t5.table.weight", values[:number].clone(), _RELATIVE)
        theta = values[[number // 2, number]]  # for queries at [CLS], for keys at [CLS]
        reader.put(_TABLE + "theta", theta, _RELATIVE)
    heads = _heads(reader.parameters)
    plain = [head for head in heads if f"{head}.dense.weight" not in reader.parameters]
    for head in plain:  # an early version had no dense layer
        if plain != heads:
            raise UsageError(
                f"{reader.path}: has no tensor {head}.dense.weight, but a different head has one"
            )
        reader.put_identity(head + ".dense", settings["encoder_embed_dim"], head)
        settings["pooler_activation_fn"] = "linear"
    settings["load_checkpoint_heads"] = bool(heads)
    notes = [f"classification head {head.partition('.')[2]}" for head in heads]
    scale = config.factor(_SCALE, 2)
    if scale == 2:  # the same divisor as here, √(2D)
        return notes
    layers = [f"{kinds.ENCODER}layers.{n}.{t.Q}" for n in range(int(settings["encoder_layers"]))]
    for name in [*layers, kinds.ENCODER + _Q]:
        for key in (f"{name}.weight", f"{name}.bias"):
            reader.parameters[key] = reader.parameters[key] * math.sqrt(2 / scale)
    return [
        *notes,
        f"attn_scale_factor is {scale}: queries were multiplied by a constant, because "
        "logits are divided by √(2D) here",
    ]


def _formulas(imported: Imported, folder: hf.Folder) -> ForeignModel:
    """The reference implementation of TUPE with the parameters of a checkpoint."""
    config, order = folder.config, imported.vocabulary.order
    flags = {
        **imported.settings,
        "pooler_activation_fn": config.get("pooler_activation_fn", "tanh"),
        "max_rel_pos": config.get("max_rel_pos", 128),
        _SCALE: config.get(_SCALE, 2),
    }
    model = ReleasedTUPE(folder.parameters, flags)
    heads = [head.partition(".")[2] for head in _heads(folder.parameters)]

    def classes(head: str) -> Logits:
        return lambda tokens, segments: model.classes(order[tokens], head)

    return ForeignModel(
        lambda tokens, segments: model.logits(order[tokens])[..., order],
        "the released model, computed in float64 (its own code needs fairseq 0.9)",
        {head: classes(head) for head in heads},
    )


class TUPEImporter(Importer):
    """Reads a checkpoint of TUPE's released code."""

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        checkpoint = load_file(path, stand_ins=_STAND_INS)
        checkpoint = checkpoint if isinstance(checkpoint, dict) else {}
        args, model = checkpoint.get("args"), checkpoint.get("model")
        if not isinstance(args, Namespace) or not model:
            raise UsageError(
                f"{path}: is not a checkpoint of fairseq 0.9 (it has no args or no model)"
            )
        parameters = check_tensors(model, path)
        if _POSITIONS not in parameters or parameters[_POSITIONS].dim() != 2:
            raise UsageError(
                f"{path}: has no {_POSITIONS}, the position table, so it is not a TUPE checkpoint"
            )
        folder = hf.Folder(path, Config(f"{path}: args", vars(args)), path, parameters)
        imported = read_class(_class_of(parameters), folder, vocab)
        return imported._replace(foreign=_formulas(imported, folder))


register_format(
    "tupe",
    summary="a checkpoint of TUPE's released code, with its dict.txt in the same folder",
    importer=TUPEImporter(),
)
