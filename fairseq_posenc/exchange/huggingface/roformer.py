"""RoFormer as ``transformers`` saves it, read and written.

Masked and causal language models and sequence and token classifiers can be imported, including
those with ``rotary_value`` or an ``embedding_size`` other than ``hidden_size``.  A causal RoFormer
is a masked one that attends to the left, and becomes a language model with the output layer of one.

Its pairs of channels are interleaved (RoFormer Eq. 26).  The saved sine table is checked and left
out, since rotary computes it.  Token types become segments.  A sequence classifier applies
``hidden_act``, for which fairseq has a separate flag, ``--pooler-activation-fn``.
"""

from typing import Any, Dict, List, Mapping, Optional

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.rotary_frequencies import frequencies
from fairseq_posenc.exchange import formats
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.exporter import Exported
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface import masked
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import ClassExporter, ClassImporter
from fairseq_posenc.exchange.huggingface.encoder_texts import WordPieceTexts
from fairseq_posenc.exchange.huggingface.entries import ACTIVATIONS, activation, rate, written
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import ForeignParameters, Reader, size_of
from fairseq_posenc.flags.options import Layer
from fairseq_posenc.models.kinds import CAUSAL, ENCODER, MASKED, Kind, Parameters, Settings

BASE = "roformer."
TABLE = BASE + "encoder.embed_positions.weight"
_CAUSAL, _OTHER = "RoFormerForCausalLM", "roformer-v2 reads rms_norm with use_bias false"
_LM = {
    "dense": "cls.predictions.transform.dense",
    "layer_norm": "cls.predictions.transform.LayerNorm",
}


def sine_table(length: int, head_dim: int) -> Tensor:
    """Sines and cosines of every position, (length, D)."""
    positions = torch.arange(length, dtype=torch.float64)
    angles = positions.unsqueeze(1) * frequencies(head_dim, 10000.0)
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()


def _read_table(reader: Reader, settings: Settings, config: Config) -> List[str]:
    """Check the sine table, which rotary computes."""
    if TABLE not in reader:
        return []
    table, heads = reader.take(TABLE), settings["encoder_attention_heads"]
    channels = settings["encoder_embed_dim"]
    length = config.get("max_position_embeddings", len(table) if table.dim() else 1)
    if table.shape != (length, channels // heads):
        raise UsageError(
            f"{config.path}: max_position_embeddings is {length} and num_attention_heads is "
            f"{heads}, which make {length} x {channels // heads} of hidden_size {channels}, but "
            f"{TABLE} in {reader.path} has size {size_of(table)}"
        )
    # the model may have been saved in fp16
    if not torch.allclose(table, sine_table(*table.shape), atol=2e-3):
        raise UsageError(
            f"{reader.path}: {TABLE} is not the usual sine table (base 10000); other tables "
            "cannot be imported"
        )
    return []


def _write_table(
    state: ForeignParameters, ours: Parameters, settings: Settings, entries: Dict[str, Any]
) -> List[str]:
    size = settings["encoder_embed_dim"] // settings["encoder_attention_heads"]
    state[TABLE] = sine_table(settings["max_positions"], size)
    return []


@torch.no_grad()
def _renew_table(model: Layer) -> None:
    """Compute the table of sines and cosines by the class of transformers, in float32.

    A table saved in fp16 alone changes logits by 0.001.
    """
    saved = model.roformer.encoder.embed_positions
    new = type(saved)(*saved.weight.shape)
    model._init_weights(new)  # some versions leave it to the model to fill the table
    saved.weight.copy_(new.weight)


def _projected(settings: Settings, number: int) -> bool:
    return bool(settings["encoder_input_dim"] != settings["encoder_embed_dim"])


_STACK = t.Stack(
    ENCODER,
    BASE + "encoder.layer.{}.",
    masked.BERT_LAYER,
    BASE + "embeddings.word_embeddings.weight",
    (
        t.Joint(BASE + "embeddings.LayerNorm", ("layernorm_embedding",)),
        t.Joint(BASE + "embeddings_project", ("embed_project",), when=_projected),
    ),
    segments=BASE + "embeddings.token_type_embeddings.weight",
)
ENTRIES = (
    *masked.SIZES,
    t.entry("hidden_size", ("encoder_embed_dim",)),
    t.entry("embedding_size", ("encoder_input_dim",), usual=lambda c: c.size("hidden_size")),
    rate("layer_norm_eps", "layer_norm_eps", usual=1e-12),
    rate("hidden_dropout_prob", "dropout", "pooler_dropout", usual=0.1),
    rate("attention_probs_dropout_prob", "attention_dropout", usual=0.1),
    t.entry("max_position_embeddings", ("max_positions",), Config.length, 1536),
    t.entry("type_vocab_size", ("num_segments",), usual=2, back=lambda number: number or 2),
    t.entry("rotary_value", ("rotary_value",), Config.flag, False),
    t.entry("is_decoder", ("causal",), Config.flag, False),
    masked.ENCODERS[1],
)
_ALWAYS: Settings = {
    "position_encoding": "rotary",
    "encoder_normalize_before": False,
    "layernorm_embedding": True,
    "activation_dropout": 0.0,
}


def _table_note(folder: hf.Folder) -> str:
    """A remark on the reference's table of sines and cosines, for messages."""
    table = folder.parameters.get(TABLE)
    if table is None:
        return ", which computes the sine table that the file lacks"
    exact = sine_table(*table.shape)
    usual = table.dtype == torch.float32 and torch.allclose(table, exact, atol=1e-6)
    return "" if usual else ", its sine table computed in float32, not read from the file"


#: The settings with other names: masked, causal.
_RENAMED = {
    MASKED.length: CAUSAL.length,
    **{
        f"encoder_{name}": f"decoder_{name}"
        for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before")
    },
}
_BACK = {causal: name for name, causal in _RENAMED.items()}
#: Settings that only masked language models have.
_MASKED_ONLY = (
    *("causal", "encoder_input_dim", "load_checkpoint_heads", "untie_weights_roberta"),
    *("pooler_activation_fn", "pooler_dropout"),
)
#: Settings that give a language model BERT's shape.
_SHAPE: Settings = {"lm_head": "roberta", "no_scale_embedding": True}


def _causal_settings(settings: Settings) -> Settings:
    """The settings of a language model, given those of a causal masked one."""
    kept = {name: value for name, value in settings.items() if name not in _MASKED_ONLY}
    return {
        **{_RENAMED.get(name, name): value for name, value in kept.items()},
        **_SHAPE,
        "decoder_input_dim": settings["encoder_embed_dim"],
        "decoder_output_dim": settings["encoder_embed_dim"],
        "tokens_per_sample": settings[MASKED.length],
        "share_decoder_input_output_embed": not settings["untie_weights_roberta"],
    }


def _masked_settings(settings: Settings) -> Settings:
    """The settings of a causal masked language model, given those of a language model."""
    return {
        **{_BACK.get(name, name): value for name, value in settings.items()},
        "causal": True,
        "encoder_input_dim": settings["decoder_embed_dim"],
        "untie_weights_roberta": not settings["share_decoder_input_output_embed"],
    }


def _renamed(entries: Mapping[str, Any], source: Kind, target: Kind) -> Dict[str, Any]:
    """Entries by parameter name, renamed from the *source* kind of model to the *target* kind."""

    def rename(name: str) -> str:
        for theirs, ours in ((source.head, target.head), (source.stack, target.stack)):
            if name.startswith(theirs):
                return ours + name[len(theirs) :]
        return name

    return {rename(name): value for name, value in entries.items()}


def _adapted(imported: formats.Imported, name: str, folder: hf.Folder) -> formats.Imported:
    """A language model, if it is one."""
    settings, foreign = imported.settings, imported.foreign
    assert foreign is not None  # transformers runs all of these classes
    noted = foreign._replace(description=foreign.description + _table_note(folder))
    imported = imported._replace(foreign=noted)
    if name != _CAUSAL:
        return imported
    if settings["causal"] and not _projected(settings, 0):
        return imported._replace(
            settings=_causal_settings(settings),
            parameters=_renamed(imported.parameters, MASKED, CAUSAL),
            origin=_renamed(imported.origin, MASKED, CAUSAL),
            kind=CAUSAL,
        )
    reason = "embedding_size is not hidden_size" if settings["causal"] else "is_decoder is false"
    note = f"becomes a masked language model, not a language model, since {reason}"
    return imported._replace(notes=[*imported.notes, note])


ROFORMER = t.TransformersClass(
    "roformer",
    {
        "RoFormerForMaskedLM": masked.output(_LM, when=lambda settings: not settings["causal"]),
        _CAUSAL: masked.output(_LM),
        **masked.classifiers(*masked.BERT_HEADS, "RoFormer"),
    },
    MASKED,
    stacks=(_STACK,),
    entries=(
        *ENTRIES,
        activation("hidden_act", "activation_fn", "pooler_activation_fn"),
        t.fixed("norm_type", "layer_norm", written=False, why=_OTHER),
        t.fixed("use_bias", True, written=False, why=_OTHER),
        written("initializer_range", lambda settings: 0.02),
    ),
    always=_ALWAYS,
    values={"activation_fn": ACTIVATIONS},
    output="cls.predictions.decoder.weight",
    output_biases=("cls.predictions.bias", "cls.predictions.decoder.bias"),
    pairing="interleaved",
    inputs=("input_ids", "token_type_ids", "attention_mask"),
    computed=(TABLE,),
    prepare=_renew_table,
    unused=(BASE + "pooler.", BASE + "embeddings.position_ids", "cls.seq_relationship."),
    texts=WordPieceTexts(),
    after_reading=_read_table,
    before_writing=_write_table,
    adapt=_adapted,
)


class RoFormerExporter(ClassExporter):
    """Writes a folder that transformers' RoFormer classes load."""

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.exporter.CheckpointExporter`."""
        if checkpoint.kind is CAUSAL:
            settings = _masked_settings(checkpoint.settings)
            same = _causal_settings({**settings, **_ALWAYS})
            values = {name: (value,) for name, value in same.items()}
            shape = formats.Expressible(f"{_CAUSAL} of transformers", (), values)
            formats.refuse_inexpressible(checkpoint.path, CAUSAL.family, checkpoint.settings, shape)
            checkpoint = checkpoint._replace(
                settings=settings,
                parameters=_renamed(checkpoint.parameters, CAUSAL, MASKED),
                kind=MASKED,
            )
        return super().write(checkpoint, head, folder)


formats.register_format(
    "hf-roformer",
    summary="a folder of transformers' RoFormer classes",
    importer=ClassImporter(ROFORMER),
    exporter=RoFormerExporter(ROFORMER),
)
