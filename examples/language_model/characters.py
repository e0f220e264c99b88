"""Binarise the characters or bytes of a file: 90 % train, 5 % valid, 5 % test.

    python characters.py binarize text8|enwik8 FILE DATA
    python characters.py encode text8|enwik8 < text        symbols separated by spaces, for a prompt
    python characters.py decode text8|enwik8 < symbols     the inverse

text8 consists of the letters a to z and the space, which is written _. enwik8 consists of bytes:
printable ones except the space are symbols as they are, the others are written like <0A>. Both are
reversible. No symbol is added at the end of a line or of the text, so the loss in bits per token is
bits per character.
"""

import argparse
import os
import sys
from typing import Dict, Optional, Sequence

from text import fail, refuse_compressed

SPLITS = ("train", "valid", "test")
SHARE = 20  # valid and test are each one part in this many
ITEM = 4096  # symbols per item of the data set; samples may span items


def _of_any_byte(byte: int) -> str:
    return chr(byte) if 0x21 <= byte <= 0x7E else f"<{byte:02X}>"


#: Symbols by byte. Their numbering does not depend on the text, so a model can read any text.
ALPHABETS: Dict[str, Dict[int, str]] = {
    "text8": {ord(" "): "_", **{byte: chr(byte) for byte in b"abcdefghijklmnopqrstuvwxyz"}},
    "enwik8": {byte: _of_any_byte(byte) for byte in range(256)},
}


def encode(data: bytes, kind: str) -> str:
    """Convert bytes to symbols separated by spaces.

    Args:
        data: the bytes.
        kind: a key of :data:`ALPHABETS`.
    """
    _check(data, kind, "standard input")
    return " ".join(ALPHABETS[kind][byte] for byte in data)


def decode(symbols: str, kind: str) -> bytes:
    """Convert symbols separated by spaces to bytes."""
    bytes_of = {symbol: byte for byte, symbol in ALPHABETS[kind].items()}
    for symbol in symbols.split():
        if symbol not in bytes_of:
            fail(f"{symbol}: not a symbol of {kind}")
    return bytes(bytes_of[symbol] for symbol in symbols.split())


def _check(data: bytes, kind: str, name: str) -> None:
    """Exit with an error if *kind* has no symbol for one of the bytes."""
    known = bytes(ALPHABETS[kind])
    if data.translate(None, known):
        where = next(index for index, byte in enumerate(data) if byte not in known)
        fail(
            f"{name}: byte 0x{data[where]:02x} at {where} is not in {kind}, which consists of a to "
            "z and spaces; enwik8 takes any byte"
        )


def binarize(path: str, kind: str, folder: str) -> None:
    """Write the files of fairseq-preprocess: dict.txt, and .bin and .idx of every split.

    Args:
        path: the text.
        kind: a key of :data:`ALPHABETS`.
        folder: the folder to write to.
    """
    import numpy as np  # not needed for prompts
    import torch
    from fairseq.data import Dictionary, indexed_dataset

    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    refuse_compressed(path, data[:16])
    held_out = len(data) // SHARE
    if not held_out:
        fail(f"{path}: has {len(data)} bytes, too few to split")
    _check(data, kind, path)
    ends = [0, len(data) - 2 * held_out, len(data) - held_out, len(data)]
    counts = np.bincount(np.frombuffer(data[: ends[1]], dtype=np.uint8), minlength=256)
    dictionary, numbers = Dictionary(), np.zeros(256, dtype=np.int64)
    for byte, symbol in ALPHABETS[kind].items():
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("binarize", "encode", "decode"):
        command = commands.add_parser(name)
        command.add_argument("kind", choices=ALPHABETS)
        if name == "binarize":
            command.add_argument("file")
            command.add_argument("data")
    args = parser.parse_args(argv)
    if args.command == "binarize":
        binarize(args.file, args.kind, args.data)
    elif args.command == "encode":
        print(encode(sys.stdin.buffer.read(), args.kind))
    else:
        sys.stdout.buffer.write(decode(sys.stdin.read(), args.kind))


if __name__ == "__main__":
    main()
