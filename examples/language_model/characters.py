"""Binarise the characters or bytes of a file: 90 % train, 5 % valid, 5 % test.

    python characters.py text8|enwik8 FILE DATA

text8 consists of the letters a to z and the space, which is written _. enwik8 consists of bytes:
printable ones except the space are symbols as they are, the others are written like <0A>. Both are
reversible. No symbol is added at the end of a line or of the text, so the loss in bits per token is
bits per character.
"""

import os
import sys
from typing import Optional, Sequence

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import refuse_compressed
from fairseq_posenc.flags.usage import documented_parser
from fairseq_posenc.serving.subwords import BYTES

SPLITS = ("train", "valid", "test")
SHARE = 20  # valid and test are each one part in this many
ITEM = 4096  # symbols per item of the data set; samples may span items


def check(data: bytes, kind: str, name: str) -> None:
    """Refuse bytes for which *kind* has no symbol."""
    known = bytes(BYTES[kind])
    if data.translate(None, known):
        where = next(index for index, byte in enumerate(data) if byte not in known)
        raise UsageError(
            f"{name}: byte 0x{data[where]:02x} at {where} is not in {kind}, which consists of a to "
            "z and spaces; enwik8 takes any byte"
        )


def binarize(path: str, kind: str, folder: str) -> None:
    """Write the files of fairseq-preprocess: dict.txt, and .bin and .idx of every split.

    Args:
        path: the text.
        kind: text8 or enwik8.
        folder: the folder to write to.
    """
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    refuse_compressed(path, data[:16])
    held_out = len(data) // SHARE
    if not held_out:
        raise UsageError(f"{path}: has {len(data)} bytes, too few to split")
    check(data, kind, path)
    ends = [0, len(data) - 2 * held_out, len(data) - held_out, len(data)]
    counts = np.bincount(np.frombuffer(data[: ends[1]], dtype=np.uint8), minlength=256)
    dictionary, numbers = Dictionary(), np.zeros(256, dtype=np.int64)
    for byte, symbol in BYTES[kind].items():
        numbers[byte] = dictionary.add_symbol(symbol, n=int(counts[byte]))
    dictionary.pad_to_multiple_(8)
    os.makedirs(folder, exist_ok=True)
    dictionary.save(os.path.join(folder, "dict.txt"))
    for split, start, end in zip(SPLITS, ends, ends[1:]):
        tokens = torch.from_numpy(numbers[np.frombuffer(data[start:end], dtype=np.uint8)])
        prefix = os.path.join(folder, split)
        builder = indexed_dataset.make_builder(prefix + ".bin", "mmap", len(dictionary))
        for item in tokens.split(ITEM):
            builder.add_item(item)
        builder.finalize(prefix + ".idx")
        print(f"{split}: {len(tokens):,} symbols", file=sys.stderr)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    parser.add_argument("kind", choices=BYTES)
    parser.add_argument("file")
    parser.add_argument("data")
    args = parser.parse_args(argv)
    binarize(args.file, args.kind, args.data)


if __name__ == "__main__":
    main()
