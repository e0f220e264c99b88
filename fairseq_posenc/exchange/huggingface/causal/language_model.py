"""Language models as native classes of transformers, without code of this plug-in: both ways.

Written symbols keep the numbers of dict.txt.  fairseq multiplies embeddings by √C where the classes
do not: the factor becomes part of the written embeddings, which are then apart from the output
weights.  Pairs of rotated channels are written as halves (i, i + D/2); reordering the rows of
queries and keys alike leaves their products unchanged.

RMS norms have no gains here.  Written gains are ones; read gains become part of the weights behind
them, because W (g ⊙ x) = (W diag g) x.
"""

import math
import os
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.checkpoints.loader import read_dictionary
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import (
    Expressible,
    ForeignModel,
    Imported,
    Importer,
    refuse_inexpressible,
    register_format,
)
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface import joints, names
from fairseq_posenc.exchange.huggingface.agreement import agreed, has_own_output
from fairseq_posenc.exchange.huggingface.card import CARD_FLAGS
from fairseq_posenc.exchange.huggingface.causal.classes import CLASSES, CausalClass
from fairseq_posenc.exchange.huggingface.tokenizers.splitters import splitter_of
from fairseq_posenc.exchange.huggingface.tokenizers.symbols import CAUSAL_MARKS, write_symbols
from fairseq_posenc.exchange.native import VOCAB, NativeCheckpoint
from fairseq_posenc.exchange.prepared import SUBWORD_FLAGS
from fairseq_posenc.exchange.reader import (
    DICTIONARY,
    Reader,
    dictionary_vocabulary,
    read_vocabulary,
)
from fairseq_posenc.exchange.transfer import CheckpointExporter, Exported
from fairseq_posenc.exchange.written import Stack
from fairseq_posenc.models.kinds import CAUSAL, FOLLOWING, PAD, Parameters, Settings

DECODER = CAUSAL.stack
OUTPUT = CAUSAL.head + "weight"
#: Settings of any value: they are read, follow from the parameters, or matter in training alone.
#: Settings of rotary have an effect on rotary models alone, whose classes read them.
_READ = (
    *("decoder_layers", "decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_attention_heads"),
    *("decoder_input_dim", "decoder_output_dim", "share_decoder_input_output_embed"),
    *("no_scale_embedding", "layer_norm_eps", "max_target_positions", "decoder_learned_pos"),
    *("rotary_base", "rotary_pairing", "rotary_scaling", "rotary_scaling_factor"),
    *("rotary_original_length", "rotary_factors", *FOLLOWING),
)
#: The weights behind each norm of a layer.
_BEHIND = {names.NORM_1: (names.Q, names.K, names.V), names.NORM_2: (names.FC1, names.GATE)}
#: Ends of the names of tensors that the classes compute themselves.
_COMPUTED = (
    *(".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias"),
    ".rotary_emb.inv_freq",
)
_BEGINNING = "</s>"  # a text of fairseq's language models begins with it


class CausalExporter(CheckpointExporter):
    """Writes a folder that a class of transformers loads.

    Args:
        target: the class.
    """

    flags = (VOCAB, *SUBWORD_FLAGS, *CARD_FLAGS)

    def __init__(self, target: CausalClass) -> None:
        self.target = target

    def stacks(self, settings: Settings) -> Sequence[Stack]:
        """See :class:`~fairseq_posenc.exchange.transfer.FolderExporter`."""
        layers, heads = settings["decoder_layers"], settings["decoder_attention_heads"]
        return (Stack(self.target.names, DECODER, layers, heads, partial(_ordered, settings)),)

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.transfer.CheckpointExporter`."""
        target, settings, path = self.target, checkpoint.settings, checkpoint.path
        if checkpoint.kind is not CAUSAL:
            raise UsageError(
                f"{path}: {target.architecture} is for models of --arch {CAUSAL.arch}, and this is "
                f"one of --arch {checkpoint.kind.arch}"
            )
        expressible = Expressible(
            f"{target.architecture} of transformers", (*_READ, *target.read), target.values
        )
        refuse_inexpressible(path, CAUSAL.family, settings, expressible)
        state = foreign_parameters(checkpoint, target)
        symbols = checkpoint.symbols
        splitter = splitter_of(checkpoint.subwords, "decoder", symbols, hides=True)
        hidden = len(splitter.hidden)
        for name in {target.names.embedding, target.names.output} & set(state):
            state[name] = joints.extended(state[name], hidden)
        entries = {
            "model_type": target.model_type,
            "architectures": [target.architecture],
            **target.entries(settings, _rotated(settings)[1], path),
            "tie_word_embeddings": target.names.output not in state,
            "vocab_size": len(symbols) + hidden,
            "pad_token_id": PAD,
            "bos_token_id": symbols.index(_BEGINNING),
            "eos_token_id": symbols.index("</s>"),
            "torch_dtype": "float32",
        }
        hf.write_weights(folder, entries, state)
        read_dictionary(checkpoint.dictionary, adds_mask=False).save(
            os.path.join(folder, DICTIONARY)
        )
        if splitter.sentencepiece is not None:
            Path(folder, "tokenizer.model").write_bytes(splitter.sentencepiece)
        longest = settings["max_target_positions"]
        write_symbols(folder, symbols, longest, CAUSAL_MARKS, splitter)
        _write_generation(folder, entries, longest, range(len(symbols), len(symbols) + hidden))
        foreign = _reference(folder, target.architecture, torch.arange(len(symbols)), 0)
        notes = list(splitter.notes)
        if hidden:
            notes.append(
                f"{hidden} symbols of the subwords that dict.txt lacks have the vectors of <unk>, "
                "and generation_config.json keeps them from being written"
            )
        return Exported(foreign, tuple(notes))


def _write_generation(folder: str, entries: Settings, longest: int, hidden: range) -> None:
    """Write generation_config.json, by which ``generate`` writes symbols of dict.txt alone.

    Args:
        longest: the longest text, in tokens; a pipeline would go on behind it.
    """
    content = {name: entries[name] for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    content["max_length"] = longest
    content["suppress_tokens"] = [PAD, *hidden]
    Path(folder, "generation_config.json").write_text(json_text(content), "utf-8")


def _rotated(settings: Settings) -> Tuple[int, int]:
    """The channels of a head, and how many of them are rotated."""
    size = settings["decoder_embed_dim"] // settings["decoder_attention_heads"]
    return size, int(size * settings["rotary_fraction"])


def _ordered(settings: Settings, ours: Parameters) -> Parameters:
    """A copy of our parameters whose pairs of rotated channels are halves."""
    if settings["position_encoding"] == "rotary" and settings["rotary_pairing"] == "interleaved":
        return joints.with_halves(ours, *_rotated(settings))
    return dict(ours)


def foreign_parameters(checkpoint: NativeCheckpoint, target: CausalClass) -> Dict[str, Tensor]:
    """The parameters of a language model by their names in a class.

    Raises:
        UsageError: the class lacks one of them.
    """
    settings, theirs = checkpoint.settings, target.names
    ours = _ordered(settings, checkpoint.parameters)
    heads, channels = settings["decoder_attention_heads"], settings["decoder_embed_dim"]
    layers = settings["decoder_layers"]
    state, gains = joints.write_layers(ours, theirs, DECODER, layers, heads)
    state.update({name: torch.ones(channels) for name in gains})  # RMS norms have gains alone
    embedding = ours.pop(CAUSAL.embedding)
    output = ours.pop(OUTPUT, embedding)
    scale = 1.0 if settings["no_scale_embedding"] else math.sqrt(channels)
    state[theirs.embedding] = embedding * scale
    if not torch.equal(state[theirs.embedding], output):
        state[theirs.output] = output
    for mine, name in theirs.norms.items():
        for part in ("weight", "bias"):
            x = ours.pop(f"{DECODER}{mine}.{part}", None)
            if x is not None:
                state[f"{name}.{part}"] = x
            elif part == "weight":
                state[f"{name}.{part}"] = torch.ones(channels)
    if theirs.table:  # rows of fairseq's table begin behind the number of the padding symbol
        state[theirs.table] = ours.pop(f"{DECODER}embed_positions.weight")[PAD + 1 :]
    if ours:
        raise UsageError(
            f"{checkpoint.path}: {target.architecture} has no counterpart of {next(iter(ours))}"
        )
    return state


class CausalImporter(Importer):
    """Reads a folder of a class of transformers.

    Args:
        source: the class.
    """

    def __init__(self, source: CausalClass) -> None:
        self.source = source
        if any(joint.layout is names.TRANSPOSED for joint in source.names.modules):
            self.transposed = [source.model_type]

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        source = self.source
        folder = hf.open_folder(path, source.model_type, source.aliases)
        config, names = folder.config, source.names
        config.architecture([source.architecture])
        settings = source.settings(config)
        vocabulary = dictionary_vocabulary(path, vocab) or read_vocabulary(path, vocab)
        folder = folder._replace(parameters=hf.with_prefix(folder.parameters, names.embedding))
        rows, width = (names.embedding, names.output), source.sizes["decoder_embed_dim"]
        folder, notes = agreed(folder, vocabulary, rows, width)
        tied = config.flag("tie_word_embeddings", source.tied)
        own = has_own_output(folder, tied, (names.output, names.embedding))
        reader = Reader(folder.weights, folder.parameters, vocabulary)
        notes += _move(reader, source, settings, config, not own)
        reader.finish(f"config.json ({source.architecture})")
        foreign = _reference(path, source.architecture, vocabulary.order, vocabulary.missing)
        if vocabulary.missing:
            notes.append(f"{vocabulary.missing} symbols of fairseq's that it lacks start as zeros")
        notes.append(
            f"fairseq begins a text with {vocabulary.names['</s>']!r}; --add-bos-token begins it "
            f"with {vocabulary.names.get('<s>', '<s>')!r}"
        )
        return Imported(
            settings,
            reader.parameters,
            reader.origin,
            vocabulary,
            foreign,
            notes=notes,
            kind=CAUSAL,
        )


def _move(
    reader: Reader, source: CausalClass, settings: Settings, config: Config, tied: bool
) -> List[str]:
    """Move all parameters, set whether the output is tied, and return notes."""
    theirs, heads = source.names, settings["decoder_attention_heads"]
    rms, biased = settings.get("norm") == "rms", not settings.get("no_bias")
    layers, channels = settings["decoder_layers"], settings["decoder_embed_dim"]

    def theirs_biased(module: str) -> bool:
        return theirs.biased(module, config)

    def ours_biased(module: str) -> bool:
        return biased and not (rms and module in _BEHIND)

    joints.read_layers(reader, theirs, DECODER, layers, heads, theirs_biased, ours_biased)
    for number in range(layers if rms else 0):
        ours = f"{DECODER}layers.{number}."
        for norm, behind in _BEHIND.items():
            gain = joints.take_gain(reader, f"{ours}{norm}.weight", channels)
            joints.absorb_gain(reader, gain, [f"{ours}{name}.weight" for name in behind])
    reader.move_rows(theirs.embedding, CAUSAL.embedding)
    if tied:
        reader.drop(theirs.output)
    else:
        reader.move_rows(theirs.output, OUTPUT)
    for mine, name in theirs.norms.items():
        reader.move(f"{name}.weight", f"{DECODER}{mine}.weight")
        if not rms:
            reader.move(f"{name}.bias", f"{DECODER}{mine}.bias")
    notes = []
    if rms:
        gain = joints.take_gain(reader, f"{DECODER}layer_norm.weight", channels)
        if tied and not bool((gain == 1).all()):
            reader.put(OUTPUT, reader.parameters[CAUSAL.embedding].clone(), theirs.embedding)
            notes.append("its output is tied, and apart here, with the gain of the last norm")
            tied = False
        joints.absorb_gain(reader, gain, [OUTPUT])
    settings["share_decoder_input_output_embed"] = tied
    if theirs.table:
        table = joints.positions(reader, theirs.table, 0, settings["max_target_positions"])
        joints.put_positions(reader, table, f"{DECODER}embed_positions.weight", theirs.table)
    for name in [name for name in reader.rest if name.endswith(_COMPUTED)]:
        del reader.rest[name]
    return notes


def _reference(path: str, architecture: str, order: Tensor, missing: int) -> ForeignModel:
    """The logits of a folder, computed by transformers.

    Args:
        order: the folder's number of each symbol of fairseq's dictionary, (V,); symbols that the
            folder lacks have the highest numbers.
        missing: how many symbols the folder lacks; their vectors are zeros.
    """
    known = len(order) - missing

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        model: Any = hf.load_model(path, architecture)
        with torch.no_grad():
            vectors = model.get_input_embeddings().weight[:known]
            vectors = torch.cat((vectors, vectors.new_zeros(missing, vectors.size(1))))
            out = model(
                inputs_embeds=vectors[order[tokens]], attention_mask=tokens.ne(PAD).long()
            ).logits[..., :known]
        return torch.cat((out, out.new_zeros(*out.shape[:2], missing)), dim=-1)[..., order]

    return ForeignModel(logits, f"{architecture} of transformers")


for _name, _class in CLASSES.items():
    register_format(
        _name,
        summary=f"a folder of transformers' {_class.architecture}",
        importer=CausalImporter(_class),
        exporter=CausalExporter(_class),
    )
