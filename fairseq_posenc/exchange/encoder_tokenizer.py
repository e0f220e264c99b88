"""The tokenizer that goes with an exported encoder, and the numbers of its symbols.

The tokenizer that is given is copied, and rows of the vocabulary are put in its order.  Without
one, a tokenizer is written for text that is split into the symbols of dict.txt already.
"""

import os
import shutil
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import LEADING, MASK, read_vocabulary
from fairseq_posenc.exchange.symbols import ENCODER_ROLES, Marks, write_symbols
from fairseq_posenc.flags.options import option
from fairseq_posenc.text.tokenizer import FILES

#: What config.json calls the numbers of special symbols, and fairseq's names of these.
_ROLES = {
    "bos_token_id": "<s>",
    "cls_token_id": "<s>",
    "pad_token_id": "<pad>",
    "eos_token_id": "</s>",
    "sep_token_id": "</s>",
}


class WrittenTokenizer(NamedTuple):
    """A tokenizer in an exported folder.

    Args:
        order: our number of each of its symbols, (V,).
        note: what the user should know of it.
    """

    order: Tensor
    note: str

    def number_of(self, ours: int) -> int:
        """Its number of one of our symbols."""
        return int(self.order.eq(ours).nonzero()[0, 0])

    def entries(self) -> Dict[str, int]:
        """The entries of config.json for special symbols."""
        return {role: self.number_of(LEADING.index(name)) for role, name in _ROLES.items()}


def written_tokenizer(
    checkpoint: NativeCheckpoint, inputs: Sequence[str], folder: str
) -> WrittenTokenizer:
    """Write the tokenizer of an encoder.

    Args:
        checkpoint: the model, with its tokenizer if one was given.
        inputs: what the model reads.
        folder: an existing folder.

    Raises:
        UsageError: the symbols of the tokenizer are not those of the model.
    """
    if checkpoint.tokenizer is not None:
        return _copied(checkpoint, checkpoint.tokenizer, folder)
    longest = int(checkpoint.settings["max_positions"])
    write_symbols(folder, checkpoint.symbols, longest, _marks(checkpoint, list(inputs)))
    return WrittenTokenizer(
        torch.arange(len(checkpoint.symbols)),
        "its tokenizer splits text at spaces, into symbols of dict.txt, as fairseq does; "
        "--tokenizer gives it another",
    )


def _marks(checkpoint: NativeCheckpoint, inputs: List[str]) -> Marks:
    """What training put around texts: [CLS] in front, and between two texts their separators."""
    fine_tuned = hasattr(checkpoint.task, "separator_token")
    separator = option(checkpoint.task, "separator_token") is not None or not fine_tuned
    second = ":1" if (checkpoint.settings["num_segments"] or 0) > 1 else ""
    between = "</s> </s>" if separator else "</s>"
    pair = f"<s> $A {between} $B{second} </s>{second}"
    return Marks(ENCODER_ROLES, "<s> $A </s>", pair, inputs)


def _copied(checkpoint: NativeCheckpoint, source: str, folder: str) -> WrittenTokenizer:
    """Copy a tokenizer of transformers, and take its numbers."""
    vocabulary = read_vocabulary(source, None)
    theirs = [*LEADING, *vocabulary.symbols, *([MASK] if MASK in vocabulary.names else [])]
    if theirs != checkpoint.symbols:
        raise UsageError(
            f"--tokenizer {source}: its symbols are not those of the model's dictionary "
            f"{checkpoint.dictionary}; give the tokenizer of its training"
        )
    for name in FILES:
        path = os.path.join(source, name)
        if os.path.isfile(path) and name != "config.json":
            shutil.copyfile(path, Path(folder, name))
    order = torch.empty_like(vocabulary.order)
    order[vocabulary.order] = torch.arange(len(order))
    return WrittenTokenizer(order, f"its tokenizer is that of {source}")
