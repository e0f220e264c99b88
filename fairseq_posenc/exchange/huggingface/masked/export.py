"""Masked language models and classifiers written as native classes of transformers.

Written symbols keep the numbers of dict.txt, or have those of a tokenizer of transformers.  A
learned position is a row of a table that begins behind the number of the padding symbol, in
transformers' RoBERTa as in fairseq.
"""

from functools import partial
from typing import Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.formats import refuse_inexpressible
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface import joints
from fairseq_posenc.exchange.huggingface.card import CARD_FLAGS
from fairseq_posenc.exchange.huggingface.encoder_heads import Architecture, label_entries
from fairseq_posenc.exchange.huggingface.masked.base import MaskedClass
from fairseq_posenc.exchange.huggingface.tokenizers.encoder import written_tokenizer
from fairseq_posenc.exchange.huggingface.tokenizers.symbols import HIDDEN, MASK_NOTE
from fairseq_posenc.exchange.native import VOCAB, NativeCheckpoint
from fairseq_posenc.exchange.prepared import SUBWORD_FLAGS
from fairseq_posenc.exchange.reader import ForeignParameters
from fairseq_posenc.exchange.source import DATA
from fairseq_posenc.exchange.transfer import HEAD, CheckpointExporter, Exported
from fairseq_posenc.exchange.written import Stack
from fairseq_posenc.models.kinds import (
    EMBEDDING,
    ENCODER,
    HEADS,
    LM_HEAD,
    MASKED,
    PAD,
    SEGMENTS,
    TABLE,
    TOKEN_HEADS,
    Settings,
)


class MaskedExporter(CheckpointExporter):
    """Writes a folder that a class of transformers loads.

    Args:
        target: the class.
    """

    flags = (VOCAB, HEAD, DATA, *SUBWORD_FLAGS, *CARD_FLAGS)

    def __init__(self, target: MaskedClass) -> None:
        self.target = target

    def stacks(self, settings: Settings) -> Sequence[Stack]:
        """See :class:`~fairseq_posenc.exchange.transfer.FolderExporter`."""
        layers, heads = settings["encoder_layers"], settings["encoder_attention_heads"]
        ordered = partial(self.target.adapted, settings=settings)
        return (Stack(self.target.names, ENCODER, layers, heads, ordered),)

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.transfer.CheckpointExporter`."""
        target, settings, path = self.target, checkpoint.settings, checkpoint.path
        if checkpoint.kind is not MASKED:
            raise UsageError(
                f"{path}: {target.prefix}ForMaskedLM is for models of --arch {MASKED.arch}, and "
                f"this is one of --arch {checkpoint.kind.arch}"
            )
        name, built = _choose(target, checkpoint, head)
        expressible = target.expressible(name, settings, built)
        refuse_inexpressible(path, MASKED.family, settings, expressible)
        tokenizer = written_tokenizer(checkpoint, target.inputs, folder)
        order, known = tokenizer.order, len(checkpoint.symbols)
        state = foreign_parameters(checkpoint, target, built, order, tokenizer.number_of(PAD))
        for bias in target.lm_bias:  # symbols that the dictionary lacks are never predicted
            if bias in state:
                state[bias][known:] = HIDDEN
        entries = {
            "model_type": target.model_type,
            "architectures": [name],
            **target.entries(settings, built, path),
            "tie_word_embeddings": target.names.output not in state,
            "vocab_size": len(order),
            **tokenizer.entries(),
            "torch_dtype": "float32",
        }
        if target.names.table:
            entries["max_position_embeddings"] = len(state[target.names.table])
        if built.head is not None:
            last = next(ours for ours in built.modules if ours.endswith(("out_proj", built.head)))
            classes = len(state[f"{built.modules[last]}.weight"])
            entries.update(label_entries(checkpoint, built.head, classes))
        target.finish(state, entries)
        hf.write_weights(folder, entries, state)
        inverse = torch.empty(known, dtype=torch.long)
        inverse[order[:known]] = torch.arange(known)
        foreign = target.reference(folder, name, built, inverse)
        notes = (MASK_NOTE,) if built.language_model else ()
        return Exported(foreign, (*tokenizer.notes, *notes))


def _choose(
    target: MaskedClass, checkpoint: NativeCheckpoint, head: Optional[str]
) -> Tuple[str, Architecture]:
    """The class for *head*, and its modules on top of the encoder."""
    if head is None:
        return f"{target.prefix}ForMaskedLM", target.language_model
    if head in checkpoint.heads(TOKEN_HEADS):
        return f"{target.prefix}ForTokenClassification", target.token_classifier(head)
    return f"{target.prefix}ForSequenceClassification", target.classifier(head)


def foreign_parameters(
    checkpoint: NativeCheckpoint,
    target: MaskedClass,
    built: Architecture,
    order: Tensor,
    padding: int,
) -> ForeignParameters:
    """The parameters of a model by their names in a class.

    Args:
        built: what is on top of the encoder.
        order: our number of each symbol of the class, (V,).
        padding: the number of the padding symbol there.

    Raises:
        UsageError: one side lacks a parameter of the other.
    """
    settings, theirs = checkpoint.settings, target.names
    ours = target.adapted(dict(checkpoint.parameters), settings)
    layers, heads = settings["encoder_layers"], settings["encoder_attention_heads"]
    state, lacking = joints.write_layers(ours, theirs, ENCODER, layers, heads)
    modules = {**{ENCODER + mine: name for mine, name in theirs.norms.items()}, **built.modules}
    for mine, name in modules.items():
        for part in joints.PARTS:
            x = ours.pop(f"{mine}.{part}", None)
            if x is not None:
                state[f"{name}.{part}"] = x
            elif part == "weight":
                lacking.append(f"{name}.weight")
    lacking = [name for name in lacking if name not in target.absent(settings)]
    if lacking:
        raise UsageError(
            f"{checkpoint.path}: has no counterpart of {lacking[0]}, which {target.prefix} of "
            "transformers requires"
        )
    embedding = ours.pop(EMBEDDING)
    state[theirs.embedding] = embedding[order]
    if theirs.table:
        table = ours.pop(TABLE)[PAD + 1 :]
        state[theirs.table] = torch.cat((table.new_zeros(padding + 1, table.size(1)), table))
    if target.segments:
        state[target.segments] = ours.pop(SEGMENTS, embedding.new_zeros(1, embedding.size(1)))
    if built.language_model:
        bias, *untied = target.lm_bias
        state[bias] = ours.pop(LM_HEAD + "bias")[order]
        if settings["untie_weights_roberta"]:
            state[theirs.output] = ours[LM_HEAD + "weight"][order]
            state.update({name: state[bias].clone() for name in untied})
    left = [name for name in ours if not name.startswith(HEADS)]
    if left:
        raise UsageError(
            f"{checkpoint.path}: {target.prefix} of transformers has no counterpart of {left[0]}"
        )
    return state
