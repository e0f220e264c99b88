"""Binarise the characters or bytes of a file: 90 % train, 5 % valid, 5 % test.

    python characters.py text8|enwik8 FILE DATA

text8 consists of the letters a to z and the space, which becomes _. enwik8 consists of bytes:
printable ASCII characters stay as they are, the space and other bytes become symbols like <0A>.
Both mappings are reversible. No symbol is added at the end of a line or of the text, so the loss in
bits per token is bits per character.
"""

import hashlib
import os
import sys

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset

#: The symbol of each byte.
BYTES = {
    "text8": {32: "_", **{byte: chr(byte) for byte in b"abcdefghijklmnopqrstuvwxyz"}},
    "enwik8": {b: chr(b) if 0x21 <= b <= 0x7E else f"<{b:02X}>" for b in range(256)},
}
#: MD5 of the files at http://mattmahoney.net/dc/textdata.html
PUBLISHED = {
    "text8": "3bea1919949baf155f99411df5fada7e",
    "enwik8": "a1fa5ffddb56f4953e226637dabbb36a",
}
COMPRESSED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ")
SPLITS = ("train", "valid", "test")
SHARE = 20  # valid and test each have 1 / SHARE of the data
ITEM = 4096  # symbols per item of the data set; samples may span items


def binarize(kind: str, path: str, folder: str) -> None:
    """Write the files of fairseq-preprocess: dict.txt, and .bin and .idx of every split."""
    with open(path, "rb") as stream:
        data = stream.read()
    if data.startswith(COMPRESSED):
        sys.exit(f"{path}: is compressed; unpack it first")
    if hashlib.md5(data).hexdigest() != PUBLISHED[kind]:
        print(f"{path}: is not the published {kind}; do not compare results", file=sys.stderr)
    other = data.translate(None, bytes(BYTES[kind]))
    if other:
        where = f"byte 0x{other[0]:02x} at {data.index(other[0])}"
        sys.exit(f"{path}: {where} is not in text8 (a to z and spaces); enwik8 takes any byte")
    held_out = len(data) // SHARE
    if not held_out:
        sys.exit(f"{path}: has {len(data)} bytes, too few to split")
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


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in BYTES:
        sys.exit(__doc__)
    binarize(*sys.argv[1:])
