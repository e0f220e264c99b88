"""A format: settings and symbols as JSON, parameters as NumPy's npz."""

import json
import os
from typing import Optional

import numpy as np
import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_object
from fairseq_posenc.exchange import (
    MASKED,
    CheckpointExporter,
    Exported,
    Expressible,
    Flag,
    Imported,
    Importer,
    NativeCheckpoint,
    Reader,
    refuse_inexpressible,
    register_format,
    renumber,
)

#: The settings that a folder records; a non-default value of any other setting is refused.
SETTINGS = (
    *("encoder_layers", "encoder_embed_dim", "encoder_input_dim", "encoder_ffn_embed_dim"),
    *("encoder_attention_heads", "position_encoding", "activation_fn", "pooler_activation_fn"),
    *("layernorm_embedding", "max_positions", "num_positions", "segments"),
    "rotary_original_length",
)
#: Parameters with a row for each symbol.
ROWS = (MASKED.embedding, MASKED.head + "weight", MASKED.head + "bias")
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


class PlainImporter(Importer):
    """Reads a folder with model.json and weights.npz."""

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        file, weights = os.path.join(path, "model.json"), os.path.join(path, "weights.npz")
        content = read_json_object(file, f"{file}:", "give a folder that export plain wrote")
        vocabulary = renumber(content["symbols"], {name: name for name in SPECIAL}, file)
        try:
            with np.load(weights, allow_pickle=False) as arrays:
                tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        except (OSError, ValueError) as error:
            raise UsageError(f"{weights}: cannot be read ({error}); export it again") from error
        reader = Reader(weights, tensors, vocabulary)
        for name in tensors:
            move = reader.move_rows if name in ROWS else reader.move
            move(name, name)
        return Imported(content["settings"], reader.parameters, reader.origin, vocabulary)


class PlainExporter(CheckpointExporter):
    """Writes a folder with model.json and weights.npz."""

    flags = (*CheckpointExporter.flags, Flag("indent", "indent of model.json (2)", "N", read=int))

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.exporter.CheckpointExporter`."""
        expressible = Expressible("the format plain", SETTINGS, {})
        family = checkpoint.kind.family
        refuse_inexpressible(checkpoint.path, family, checkpoint.settings, expressible)
        if checkpoint.kind is not MASKED or head is not None:
            raise UsageError(
                f"{checkpoint.path}: export plain takes only masked language models, without --head"
            )
        settings = {name: checkpoint.settings[name] for name in SETTINGS}
        content = {"settings": settings, "symbols": checkpoint.symbols}
        with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as file:
            indent = checkpoint.options.get("indent", 2)
            json.dump(content, file, ensure_ascii=False, indent=indent)
        arrays = {name: value.numpy() for name, value in checkpoint.parameters.items()}
        np.savez(os.path.join(folder, "weights.npz"), **arrays)
        return Exported(notes=("tokenise text as in training",))


register_format(
    "plain",
    summary="a folder with settings as JSON and parameters as npz; masked language models",
    importer=PlainImporter(),
    exporter=PlainExporter(),
)
