"""Byte-level byte-pair encoding (Radford et al. 2019), as RoBERTa's section 4.4 uses it.

    python byte_bpe.py learn --vocabulary-size 50000 [--lower-case] FOLDER INPUT [INPUT ...]

Symbols are of bytes, so no text has unknown ones; a space is part of the word after it. FOLDER gets
tokenizer.json and tokenizer_config.json, which `fairseq-posenc tokenize FOLDER` and the library
transformers read; it is new, or has nothing but these two. The vocabulary is N symbols beside the
five special ones, the bytes among them.
"""

import argparse
import json
import os
import shutil
from typing import Any, Dict, Iterator, Optional, Sequence

from text import Progress, fail, read_lines

try:
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
except ImportError:
    fail("tokenizers is not installed; run: pip install tokenizers")

# fairseq's special symbols, by their roles in the library transformers
SPECIAL: Dict[str, str] = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
FILES = ("tokenizer.json", "tokenizer_config.json")


def refuse_others(folder: str) -> None:
    """Exit with an error unless a folder is new or empty, or one that this script wrote."""
    if not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        fail(f"{folder}: is no folder; give a new one")
    others = sorted(set(os.listdir(folder)) - set(FILES))
    if others:
        fail(f"{folder}: would be replaced, and there is {others[0]} in it; give a new folder")


def lines_of(paths: Sequence[str]) -> Iterator[str]:
    """The lines of several texts, as `fairseq-posenc tokenize` reads them, but for empty ones."""
    for path in paths:
        progress, number = Progress(path), 0
        for number, line in enumerate(read_lines(path, progress), 1):
            progress.at(number)
            line = line.rstrip("\r")
            if line:
                yield line
        progress.end(number)


def learn(folder: str, paths: Sequence[str], size: int, lower_case: bool) -> None:
    """Learn a vocabulary and write its folder.

    Args:
        folder: to write; new or empty, or one that this script wrote.
        paths: the texts.
        size: number of symbols beside the special ones.
        lower_case: whether the tokenizer lower-cases text before it splits it.
    """
    folder = os.path.realpath(folder)
    part = folder + ".part"
    for place in (folder, part):
        refuse_others(place)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if size <= len(alphabet):
        fail(f"--vocabulary-size {size}: the bytes alone are {len(alphabet)}; give more")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if lower_case:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size + len(SPECIAL),
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines_of(paths), trainer)
    found = tokenizer.get_vocab_size() - len(SPECIAL)
    if found < size:
        fail(f"--vocabulary-size {size}: the text gives no more than {found}")
    settings: Dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL}
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    tokenizer.save(os.path.join(part, FILES[0]))
    with open(os.path.join(part, FILES[1]), "w", encoding="utf-8") as stream:
        json.dump(settings, stream, indent=2)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(part, folder)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["learn"])
    parser.add_argument(
        "--vocabulary-size", type=int, default=50000, metavar="N", help="number of symbols (50000)"
    )
    parser.add_argument(
        "--lower-case", action="store_true", help="lower-case text before splitting"
    )
    parser.add_argument("folder")
    parser.add_argument("inputs", nargs="+")
    args = parser.parse_args(argv)
    learn(args.folder, args.inputs, args.vocabulary_size, args.lower_case)


if __name__ == "__main__":
    main()
