"""Conversion of embeddings and output projections, in both directions.

fairseq multiplies embeddings by √C.  If a class does not, an export multiplies √C into the written
embedding, which then differs from the output projection.  T5 with a tied output computes logits
E x / √C from its embedding E.  They equal our logits if E is √C times our embedding.
"""

import dataclasses
import math
from typing import Dict, List, Mapping, Tuple

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.huggingface.table import (
    LAST_NORM,
    Architecture,
    Table,
    TransformersClass,
)
from fairseq_posenc.exchange.huggingface.texts import WrittenTexts
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import LEADING, Config, ForeignParameters, Reader, size_of
from fairseq_posenc.models.kinds import END, PAD, TRANSLATION, Parameters, Settings

_SEGMENTS = "embed_segments.weight"
#: The logit of a symbol that must not be produced; it is finite in half precision.
_HIDDEN = -65504.0
_OTHER_START = (
    "the model's translations begin with a token other than </s>; here they begin with </s>, so "
    "the decoder has separate embeddings, in which </s> has the vector of that token"
)


def write_embeddings(
    target: TransformersClass,
    ours: Parameters,
    state: ForeignParameters,
    checkpoint: NativeCheckpoint,
    texts: WrittenTexts,
    built: Architecture,
) -> None:
    """Move the embeddings and the output projection to *state*, with rows in the class's order.

    Args:
        ours: our parameters; the embeddings and the output projection are removed from it.

    Raises:
        UsageError: the model has two embeddings, but the class has only one.
    """
    tables = {stack.side: ours.pop(stack.our_embedding) for stack in target.stacks}
    (*_, side), first, last = tables, next(iter(tables.values())), [*tables.values()][-1]
    output = last if built.heads else ours.pop(target.kind.head + "weight", last)
    one, tied = first.shape == last.shape and torch.equal(first, last), torch.equal(output, last)
    if not one and not target.two_embeddings:
        raise UsageError(
            f"{checkpoint.path}: was trained without --share-all-embeddings, but {target.name} has "
            "one embedding for source and target; use export hf-remote-code; nothing was written"
        )
    root = math.sqrt(last.size(1))
    said = any("no_scale_embedding" in entry.ours for entry in target.entries)
    scale = 1.0 if said or checkpoint.settings.get("no_scale_embedding", True) else root
    divisor = root if target.divides else 1.0
    if target.shared and one and (tied or not target.two_embeddings):
        state[target.shared] = (first * scale)[texts.orders[side]]
    else:
        for stack in target.stacks:
            state[stack.embedding] = (tables[stack.side] * scale)[texts.orders[stack.side]]
    if tied and target.divides and scale != divisor:
        outside = target.stacks[-1].outside
        norm = next(joint.theirs for joint in outside if joint.ours == (LAST_NORM,))
        state[f"{norm}.weight"] *= divisor / scale
    elif not (tied and scale == divisor):
        state[target.output] = output[texts.orders[side]]
    if target.output_biases and not built.heads:
        usual, *untied = target.output_biases
        bias = ours.pop(target.kind.head + "bias", None)
        rows = (torch.zeros(len(output)) if bias is None else bias)[texts.orders[side]]
        rows[texts.known[side] :] = _HIDDEN  # symbols that our dictionary lacks are never produced
        state[usual] = rows[None] if bias is None else rows
        if target.output in state:
            state.update({name: rows.clone() for name in untied})


def write_tables(
    target: TransformersClass,
    ours: Parameters,
    state: ForeignParameters,
    settings: Settings,
    config: Config,
) -> List[str]:
    """Move the tables of positions and of segments to *state*, and return notes."""
    rows, notes = max(settings[name] for _, name in target.kind.lengths), []
    for stack in target.stacks:
        if stack.segments:
            channels = ours[stack.our_embedding].size(1)
            zeros = torch.zeros(config.size("type_vocab_size"), channels)
            state[stack.segments] = ours.pop(stack.ours + _SEGMENTS, zeros)
        if not stack.table:
            continue
        side, channels = stack.side, settings[f"{stack.side}_embed_dim"]
        encoding = settings.get(f"{side}_position_encoding") or settings["position_encoding"]
        table = torch.zeros(rows, channels)
        if encoding == "sinusoidal":
            table = _sinusoids(rows, channels)
        elif encoding == "learned":  # fairseq's first position is in row PAD + 1
            known = ours.pop(f"{stack.ours}embed_positions.weight")[PAD + 1 :][:rows]
            table[: len(known)] = known
            if len(known) < rows:
                notes.append(
                    f"the {side} has {len(known)} learned positions; its table is zero beyond them"
                )
        # a class that computes its table would not save a different one
        if stack.table.computed and not _close(table, stack.table.computed(rows, channels), 1e-5):
            raise UsageError(
                f"--position-encoding {encoding}: the {side}'s positions differ from those that "
                f"{target.name} computes, and save_pretrained would not save them; "
                "use export hf-remote-code; nothing was written"
            )
        front = torch.zeros(stack.table.first(config), channels)
        state[stack.table.theirs] = torch.cat((front, table))
    return notes


def _sinusoids(rows: int, channels: int) -> Tensor:
    """fairseq's sinusoids of the first positions, (rows, C)."""
    table: Tensor = SinusoidalPositionalEmbedding.get_embedding(PAD + 1 + rows, channels, PAD)
    return table[PAD + 1 :]


def _close(one: Tensor, other: Tensor, bound: float) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=bound)


# --- reading


def start_of(source: TransformersClass, reader: Reader, config: Config) -> int:
    """The number of the token with which translations of the foreign model begin."""
    usual = int(reader.vocabulary.order[LEADING.index(source.start)])
    return config.get("decoder_start_token_id", usual)


def read_embeddings(
    source: TransformersClass,
    reader: Reader,
    built: Architecture,
    settings: Settings,
    config: Config,
    tied: bool,
    gains: Mapping[str, Tensor],
) -> List[str]:
    """Move the embeddings and the output projection, set which ones are shared, and return notes.

    Args:
        gains: for each side, the gain (C,) of the norm after the last layer, if our norm has none.

    Raises:
        UsageError: a tensor is missing or has a wrong shape, or only the foreign output has a bias.
    """
    vocabulary, stacks, kind = reader.vocabulary, source.stacks, source.kind

    def rows(theirs: str) -> Tensor:
        table = reader.rows(theirs)
        if kind is TRANSLATION:  # symbols that the class lacks get the row of padding
            table[vocabulary.absent] = table[PAD].clone()
        return table

    shares = source.shares(config)
    own = [s.embedding for s in stacks if s.embedding in reader or not shares]
    tables: Dict[str, Tensor] = {name: rows(name) for name in own}
    if source.shared in reader or not tables:
        tables[source.shared] = rows(source.shared)
    origins = [s.embedding if s.embedding in own else [*tables][-1] for s in stacks]
    first, last = tables[origins[0]], tables[origins[-1]]
    output = last if tied or built.heads else rows(source.output)
    notes: List[str] = []
    if source.start:
        number = int((vocabulary.order == start_of(source, reader, config)).nonzero()[0])
        if number != END:
            last = last.clone()
            last[END] = last[number].clone()
            notes.append(_OTHER_START)
    gain, root = gains.get(stacks[-1].side), math.sqrt(last.size(-1))
    if gain is not None and tied and source.divides:
        same = torch.equal(first, last) and torch.equal(last, output)
        if same and bool((gain == 1).all()):  # scale inputs by √C instead of states by 1/√C
            settings["no_scale_embedding"] = False
            first = last = output = output / root
            gain = None
        else:
            gain = gain / root
    for stack, table, theirs in zip(stacks, (first, last), origins):
        reader.put(stack.our_embedding, table, theirs)
    if built.heads:
        return []
    name = kind.head + "weight"
    reader.put(name, output, source.output)
    reader.drop(source.output)
    if gain is not None and not bool((gain == 1).all()):
        reader.scale_columns(gain, [name])
        if tied:
            notes.append("the output projection, multiplied by the last gain, is untied")
    one = torch.equal(last, reader.parameters[name])
    said = {
        "untie_weights_roberta": not one,
        "share_decoder_input_output_embed": one,
        "share_all_embeddings": one and torch.equal(first, last),
    }
    known = {field.name for field in dataclasses.fields(kind.family.dataclass)}
    settings.update({ours: value for ours, value in said.items() if ours in known})
    if source.output_biases:
        _read_bias(source, reader, built, config, tied)
    return notes


def _read_bias(
    source: TransformersClass, reader: Reader, built: Architecture, config: Config, tied: bool
) -> None:
    """Move the bias of the output projection; arguments as for :func:`read_embeddings`."""
    usual, *others = source.output_biases
    name = next((other for other in others if not tied and other in reader), usual)
    if not built.modules:  # our output projection has no bias
        if name in reader and bool(reader.take(name).ne(0).any()):
            raise UsageError(
                f"{reader.path}: {name} is not zero; the output of fairseq's models has no bias"
            )
    elif source.biased(name, config):
        reader.move_rows(name, source.kind.head + "bias")
        reader.drop(*source.output_biases)
    else:
        zeros = torch.zeros(len(reader.vocabulary.order))
        reader.put(source.kind.head + "bias", zeros, name)


def read_tables(
    source: TransformersClass, reader: Reader, settings: Settings, config: Config
) -> List[str]:
    """Move the tables of positions and of segments, and return notes.

    If the class can have sinusoids, tables equal to fairseq's sinusoids are left out.  If there is
    only one segment, its vector is added to the positions.
    """
    longest = settings[source.kind.length]
    tables: List[Tuple[str, Table, Tensor]] = []
    for stack in source.stacks:
        added = stack.segments if not settings.get("num_segments") else ""
        if stack.segments and not added:
            reader.move(stack.segments, stack.ours + _SEGMENTS)
        if not stack.table:
            continue
        theirs, first_row, computed = stack.table
        if computed and theirs not in reader:
            channels = settings[f"{stack.side}_embed_dim"]
            tables.append((stack.ours, stack.table, computed(longest, channels)))
            continue
        first = first_row(config)
        table = reader.take(theirs)
        if table.dim() != 2 or len(table) != first + longest:
            raise UsageError(
                f"{reader.path}: {theirs} has {len(table) if table.dim() else 1} rows, and the "
                f"longest text allowed by config.json needs {first + longest}"
            )
        segment = reader.take(added) if added else table.new_zeros(1, table.size(1))
        if segment.shape != (1, table.size(1)):
            raise UsageError(
                f"{reader.path}: {added} has size {size_of(segment)}, but type_vocab_size 1 "
                f"requires 1 x {table.size(1)}"
            )
        tables.append((stack.ours, stack.table, table[first:] + segment))
    if "sinusoidal" in source.values.get("position_encoding", ()):
        settings["position_encoding"] = "sinusoidal"
        if all(_close(x, _sinusoids(*x.shape), 1e-6) for _, _, x in tables):
            return []
        settings["position_encoding"] = "learned"
    for ours, table_of, x in tables:
        front = x.new_zeros(PAD + 1, x.size(1))
        reader.put(f"{ours}embed_positions.weight", torch.cat((front, x)), table_of.theirs)
    if any(table_of.computed for _, table_of, _ in tables):
        return ["the positions differ from fairseq's sinusoids and become learned tables"]
    return []
