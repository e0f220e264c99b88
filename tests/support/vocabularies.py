"""The files of a tokenizer for the symbols of small foreign models."""

import json

from support.conversion import SYMBOLS
from support.foreign_models import OURS


def write_vocabulary(folder):
    """Write vocab.txt, and the names of the special symbols in it."""
    (folder / "vocab.txt").write_text("".join(f"{s}\n" for s in SYMBOLS), encoding="utf-8")
    roles = {f"{name[1:-1].lower()}_token": name for name in OURS}
    settings = {"tokenizer_class": "BertTokenizer", **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def carried(folder):
    """The flags of an export that carries the tokenizer of a folder of transformers."""
    return ["--subwords", "transformers", "--subword-file", folder]
