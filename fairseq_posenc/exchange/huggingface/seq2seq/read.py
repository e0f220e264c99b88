"""The parameters of a translation model of transformers by our names.

Gains of RMS norms become part of the weights behind them.  A class can begin a translation with
another token than ``</s>``, whose vector the decoder's ``</s>`` then gets.
"""

import math
from typing import List

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.huggingface.joints import (
    absorb_gain,
    positions,
    put_positions,
    read_layers,
    take_gain,
)
from fairseq_posenc.exchange.huggingface.seq2seq.classes import Seq2SeqClass
from fairseq_posenc.exchange.huggingface.seq2seq.names import BEHIND, CROSS_K, CROSS_V
from fairseq_posenc.exchange.huggingface.seq2seq.write import BIAS_OF_T5, EMBEDDINGS, OUTPUT, TABLE
from fairseq_posenc.exchange.reader import Reader
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import PAD, Settings


def read_parameters(
    reader: Reader,
    source: Seq2SeqClass,
    settings: Settings,
    tied: bool,
    start: int,
    shares: bool,
) -> List[str]:
    """Move all parameters to our names, complete *settings*, and return notes.

    Args:
        reader: their parameters.
        source: the class.
        settings: the flags, from config.json.
        tied: whether the output is the embedding.
        start: their number of the token that begins a translation.
        shares: whether both sides have the same embedding.

    Raises:
        UsageError: a parameter is missing, or its value cannot be expressed.
    """

    def biased(module: str) -> bool:
        return source.biased

    channels = settings["encoder_embed_dim"]
    for side in SIDES:
        heads, layers = settings[f"{side}_attention_heads"], settings[f"{side}_layers"]
        layout, prefix = source.names(side, settings), f"{side}."
        read_layers(reader, layout, prefix, layers, heads, biased, biased)
        for number in range(layers if source.gainless else 0):
            for norm, behind in BEHIND.items():
                prefix = f"{side}.layers.{number}."
                if f"{prefix}{norm}.weight" in reader.parameters:
                    gain = take_gain(reader, f"{prefix}{norm}.weight", channels)
                    absorb_gain(reader, gain, [f"{prefix}{name}.weight" for name in behind])
    for mine, theirs in source.norms.items():
        for part in ("weight",) if source.gainless else ("weight", "bias"):
            reader.move(f"{theirs}.{part}", f"{mine}.{part}")
    _refuse_bias(reader, source)
    notes = _read_tables(reader, source, settings)
    tables = _read_embeddings(reader, source, start, shares)
    if source.gainless:
        _read_t5(reader, settings, tables, tied)
    names = (EMBEDDINGS["encoder"], EMBEDDINGS["decoder"], OUTPUT)
    for name, table in zip(names, tables):
        reader.put(name, table, source.shared)
    encoded, decoded, output = tables
    settings["share_decoder_input_output_embed"] = torch.equal(decoded, output)
    settings["share_all_embeddings"] = torch.equal(encoded, decoded) and torch.equal(
        decoded, output
    )
    return notes


def _refuse_bias(reader: Reader, source: Seq2SeqClass) -> None:
    """Drop an output bias that is zero, and refuse any other."""
    if source.bias is None or source.bias not in reader:
        return
    if bool(reader.take(source.bias).ne(0).any()):
        raise UsageError(
            f"{reader.path}: {source.bias} is not zero; the output of fairseq's models has no bias"
        )


def _read_embeddings(
    reader: Reader, source: Seq2SeqClass, start: int, shares: bool
) -> List[Tensor]:
    """The embeddings of encoder and decoder and the output, in the order of the dictionary."""

    def rows(theirs: str) -> Tensor:
        found = reader.vocabulary.rows(reader.take(theirs), f"{reader.path}: {theirs}")
        # fairseq's symbols that the class lacks are as improbable as padding
        found[reader.vocabulary.absent] = found[PAD].clone()
        return found

    apart = source.apart.items()
    given = {side: rows(name) for side, name in apart if name in reader or not shares}
    if source.shared in reader or not given:
        shared = rows(source.shared)
    else:
        shared = next(iter(given.values()))
    encoded, decoded = (given.get(side, shared) for side in SIDES)
    own = rows(source.output) if source.output in reader else decoded
    first = int((reader.vocabulary.order == start).nonzero()[0])
    end = 2  # fairseq's number of </s>
    if first != end:
        decoded = decoded.clone()
        decoded[end] = decoded[first].clone()
    return [encoded, decoded, own]


def _read_t5(reader: Reader, settings: Settings, tables: List[Tensor], tied: bool) -> None:
    """Apply the last gains of both sides and, where the output is tied, its factor 1/√C."""
    channels = settings["encoder_embed_dim"]
    gains = {side: take_gain(reader, f"{side}.layer_norm.weight", channels) for side in SIDES}
    for number in range(settings["decoder_layers"]):
        prefix = f"decoder.layers.{number}."
        into = [f"{prefix}{name}.weight" for name in (CROSS_K, CROSS_V)]
        absorb_gain(reader, gains["encoder"], into)
    gain, root = gains["decoder"], math.sqrt(channels)
    same = torch.equal(tables[0], tables[1]) and torch.equal(tables[1], tables[2])
    if tied and same and bool((gain == 1).all()):
        settings["no_scale_embedding"] = False  # √C on the inputs, instead of 1/√C on the output
        tables[:] = [tables[0] / root] * 3
    elif not (tied and bool((gain == root).all())):
        tables[2] = tables[2] * (gain / root if tied else gain)


def _read_tables(reader: Reader, source: Seq2SeqClass, settings: Settings) -> List[str]:
    """Move the tables of positions, set the encoding, and return notes."""
    if source.gainless:
        for side, theirs in source.tables.items():
            reader.move(theirs, BIAS_OF_T5.format(side))
        return []
    if not source.tables:
        settings["position_encoding"] = "sinusoidal"
        return []
    rows, channels = settings["max_source_positions"], settings["encoder_embed_dim"]
    tables = {}
    for side, theirs in source.tables.items():
        if theirs in reader or source.computed is None:
            tables[side] = positions(reader, theirs, source.offset, rows)
        else:
            tables[side] = source.computed(rows, channels)
    usual = SinusoidalPositionalEmbedding.get_embedding(PAD + 1 + rows, channels, PAD)[PAD + 1 :]
    if all(
        table.shape == usual.shape and torch.allclose(table, usual, rtol=0, atol=1e-6)
        for table in tables.values()
    ):
        settings["position_encoding"] = "sinusoidal"
        return []
    settings["position_encoding"] = "learned"
    for side, table in tables.items():
        put_positions(reader, table, TABLE.format(side), source.tables[side])
    if source.computed is not None:
        return ["its positions are not fairseq's sinusoids: they become learned tables"]
    return []
