"""Byte-level BPE (Radford et al. 2019): python byte_bpe.py learn FOLDER SIZE TEXT >dict.txt
                                            python byte_bpe.py split FOLDER < TEXT > SYMBOLS

FOLDER becomes a tokenizer folder of transformers. The dictionary has SIZE symbols, including all
bytes, so no text has unknown symbols. If the variable LOWERCASE is set, the tokenizer lower-cases.
"""

import json
import os
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

#: fairseq's special symbols, keyed by their roles in tokenizer_config.json.
SPECIAL = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}


def learn(folder: str, size: str, text: str) -> None:
    """Learn a tokenizer, and print its dictionary."""
    tokenizer = Tokenizer(models.BPE())
    if os.environ.get("LOWERCASE"):
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=int(size) + len(SPECIAL),
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    with open(text, encoding="utf-8", newline="\n") as stream:
        tokenizer.train_from_iterator((line.rstrip("\n") for line in stream), trainer)
    symbols = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)[len(SPECIAL) :]
    if len(symbols) != int(size):
        sys.exit(f"{text}: allows {len(symbols)} symbols, not SIZE={size}; set SIZE to that number")
    Path(folder).mkdir(exist_ok=True)
    tokenizer.save(str(Path(folder, "tokenizer.json")))
    named = {f"{role}_token": symbol for role, symbol in SPECIAL.items()}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    Path(folder, "tokenizer_config.json").write_text(json.dumps(settings))
    sys.stdout.buffer.writelines(f"{symbol} 1\n".encode() for symbol in symbols)


def split(folder: str) -> None:
    """Split the lines of standard input into symbols, and print them."""
    tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
    for line in sys.stdin.buffer:
        symbols = tokenizer.encode(line.decode().rstrip("\n")).tokens
        sys.stdout.buffer.write(" ".join(symbols).encode() + b"\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["learn"] and len(sys.argv) == 5:
        learn(*sys.argv[2:])
    elif sys.argv[1:2] == ["split"] and len(sys.argv) == 3:
        split(sys.argv[2])
    else:
        sys.exit(__doc__)
