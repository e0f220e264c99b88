"""Import and export of RoFormer in the format of ``transformers``.

Masked language models, causal language models, sequence classifiers and token classifiers can be
imported, also with ``rotary_value`` or an ``embedding_size`` other than ``hidden_size``.  A causal
RoFormer has causal attention and a masked language model's output layer; an import keeps both.

Rotated pairs of channels are interleaved (RoFormer Eq. 26).  The saved sine table is checked and
left out, since rotary encodings compute sines.  Token types become segments.  A sequence classifier
uses ``hidden_act``; fairseq has a separate flag for this activation, ``--pooler-activation-fn``.
"""

from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.rotary_frequencies import frequencies
from fairseq_posenc.exchange import formats
from fairseq_posenc.exchange.exporter import Exported
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface import masked
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import ClassExporter, ClassImporter, read_class
from fairseq_posenc.exchange.huggingface.encoder_texts import WordPieceTexts
from fairseq_posenc.exchange.huggingface.entries import ACTIVATIONS, activation, rate, written
from fairseq_posenc.exchange.huggingface.language_models import LONGEST, WIDTH
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import Config, ForeignParameters, Reader, size_of
from fairseq_posenc.flags.options import Layer
from fairseq_posenc.models.kinds import CAUSAL, ENCODER, MASKED, Settings

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
    """Check the sine table and leave it out, since rotary encodings compute sines."""
    if TABLE not in reader:
        return []
    table = reader.take(TABLE)
    heads, channels = config.size("num_attention_heads"), config.size("hidden_size")
    length = config.get("max_position_embeddings", len(table) if table.dim() else 1)
    if table.shape != (length, channels // heads):
        raise UsageError(
            f"{config.path}: max_position_embeddings is {length} and num_attention_heads is "
            f"{heads}; with hidden_size {channels}, these require {length} x {channels // heads}, "
            f"but {TABLE} in {reader.path} has size {size_of(table)}"
        )
    # the model may have been saved in fp16
    if not torch.allclose(table, sine_table(*table.shape), atol=2e-3):
        raise UsageError(
            f"{reader.path}: {TABLE} is not the usual sine table (base 10000); other tables "
            "cannot be imported"
        )
    return []


def _write_table(state: ForeignParameters, entries: Dict[str, Any]) -> None:
    size = entries["hidden_size"] // entries["num_attention_heads"]
    state[TABLE] = sine_table(entries["max_position_embeddings"], size)


@torch.no_grad()
def _renew_table(model: Layer) -> None:
    """Compute the table of sines and cosines anew with transformers, in float32.

    The fp16 rounding of a saved table alone would change logits by 0.001.
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


def _entries(
    side: str, sizes: Tuple[t.Group, ...], longest: Tuple[str, ...], causal: t.Group, *heads: str
) -> Tuple[t.Group, ...]:
    """The entries of a masked or a causal model.

    Args:
        side: the prefix of the names of the model's settings.
        sizes: the entries for the numbers of channels.
        longest: the settings for the length of the longest text.
        causal: the entry that says whether attention is causal.
        heads: the setting for dropout in heads, if the model can have heads.
    """
    return (
        *masked.sizes(side),
        *sizes,
        rate("layer_norm_eps", "layer_norm_eps", usual=1e-12),
        rate("hidden_dropout_prob", "dropout", *heads, usual=0.1),
        rate("attention_probs_dropout_prob", "attention_dropout", usual=0.1),
        t.entry("max_position_embeddings", longest, Config.length, 1536),
        t.entry("type_vocab_size", ("num_segments",), usual=2, back=lambda number: number or 2),
        t.entry("rotary_value", ("rotary_value",), Config.flag, False),
        causal,
        masked.ENCODERS[1],
    )


def _of_norms(*activations: str) -> Tuple[t.Group, ...]:
    """Entries that differ in RoFormerV2; *activations* are the settings that hidden_act sets."""
    return (
        activation("hidden_act", *activations),
        t.fixed("norm_type", "layer_norm", written=False, why=_OTHER),
        t.fixed("use_bias", True, written=False, why=_OTHER),
        written("initializer_range", lambda settings: 0.02),
    )


ENTRIES = _entries(
    "encoder",
    (
        t.entry("hidden_size", ("encoder_embed_dim",)),
        t.entry("embedding_size", ("encoder_input_dim",), usual=lambda c: c.size("hidden_size")),
    ),
    (MASKED.length,),
    t.entry("is_decoder", ("causal",), Config.flag, False),
    "pooler_dropout",
)


_ALWAYS: Settings = {
    "position_encoding": "rotary",
    "layernorm_embedding": True,
    "activation_dropout": 0.0,
}


def _table_note(folder: hf.Folder) -> str:
    """A remark for messages if the reference does not use a sine table from the file."""
    table = folder.parameters.get(TABLE)
    if table is None:
        return ", which computes the sine table that the file lacks"
    exact = sine_table(*table.shape)
    usual = table.dtype == torch.float32 and torch.allclose(table, exact, atol=1e-6)
    return "" if usual else " with its sine table computed in float32 instead of read from the file"


ROFORMER = t.TransformersClass(
    "roformer",
    {
        "RoFormerForMaskedLM": masked.output(_LM, when=lambda settings: not settings["causal"]),
        _CAUSAL: masked.output(_LM),
        **masked.classifiers(*masked.BERT_HEADS, "RoFormer"),
    },
    MASKED,
    stacks=(_STACK,),
    entries=(*ENTRIES, *_of_norms("activation_fn", "pooler_activation_fn")),
    always={**_ALWAYS, "encoder_normalize_before": False},
    values={"activation_fn": ACTIVATIONS},
    output="cls.predictions.decoder.weight",
    output_biases=("cls.predictions.bias", "cls.predictions.decoder.bias"),
    computed=(TABLE,),
    prepare=_renew_table,
    unused=(BASE + "pooler.", BASE + "embeddings.position_ids", "cls.seq_relationship."),
    texts=WordPieceTexts(),
    after_reading=_read_table,
    before_writing=_write_table,
)
#: The causal RoFormer, a language model with the output layer of a masked language model.
CAUSAL_ROFORMER = ROFORMER._replace(
    architectures={_CAUSAL: t.Architecture({CAUSAL.head + name: _LM[name] for name in _LM})},
    kind=CAUSAL,
    stacks=(_STACK._replace(ours=CAUSAL.stack, outside=_STACK.outside[:1]),),
    entries=(
        *_entries(
            "decoder",
            (
                t.entry("hidden_size", WIDTH),
                t.fixed("embedding_size", lambda settings: settings[WIDTH[0]]),
            ),
            LONGEST,
            t.fixed("is_decoder", True, False),
        ),
        *_of_norms(),
    ),
    always={
        **{**_ALWAYS, "decoder_normalize_before": False},
        **{"lm_head": "roberta", "no_scale_embedding": True},
    },
    values={"activation_fn": ACTIVATIONS, "no_scale_embedding": (True,)},
)


class RoFormerImporter(ClassImporter):
    """Reads a folder that one of transformers' RoFormer classes saved."""

    def read(self, path: str, vocab: Optional[str]) -> formats.Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        folder = hf.open_folder(path, ROFORMER.model_type)
        config = folder.config
        lm = config.architecture([*ROFORMER.architectures]) == _CAUSAL
        reason, width = "", config.get("hidden_size", None)
        if config.get("is_decoder", None) is not True:
            reason = "is_decoder is false"
        elif config.get("embedding_size", width) != width:
            reason = "embedding_size is not hidden_size"
        table = CAUSAL_ROFORMER if lm and not reason else ROFORMER
        imported = read_class(table, folder, vocab)
        foreign = imported.foreign
        assert foreign is not None  # transformers runs all of these classes
        noted = foreign._replace(description=foreign.description + _table_note(folder))
        becomes = f"the model becomes a masked language model, not a causal one, since {reason}"
        notes = [*imported.notes, *([becomes] if lm and reason else [])]
        return imported._replace(foreign=noted, notes=notes)


class RoFormerExporter(ClassExporter):
    """Writes a folder that one of transformers' RoFormer classes loads."""

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.exporter.CheckpointExporter`."""
        if checkpoint.kind is CAUSAL:
            return ClassExporter(CAUSAL_ROFORMER).write(checkpoint, head, folder)
        return super().write(checkpoint, head, folder)


formats.register_format(
    "hf-roformer",
    summary="a folder of transformers' RoFormer classes",
    importer=RoFormerImporter(ROFORMER),
    exporter=RoFormerExporter(ROFORMER),
)
