"""SentencePiece: one model learned from several texts, applied to others.

    python spm.py learn --vocabulary-size 8000 [--type bpe] MODEL INPUT [INPUT ...]
    python spm.py [--lower-case] apply MODEL INPUT OUTPUT [INPUT OUTPUT ...]

The model is learned from at most --sentences lines, drawn with a fixed seed while the texts are
read as a stream: memory does not grow with the text. Lines of more than 4,192 bytes are left out.
"""

import argparse
import itertools
import os
import re
from typing import Callable, Iterator, List, Optional, Sequence

from parallel import learn_or_apply, map_texts
from text import Progress, fail, read_lines

try:
    import sentencepiece
except ImportError:
    fail("sentencepiece is not installed; run: pip install sentencepiece")

SEED = 1


def sentences(paths: Sequence[str]) -> Iterator[str]:
    """The lines of several texts, without those that are empty."""
    for path in paths:
        progress, number = Progress(path), 0
        for number, line in enumerate(read_lines(path, progress), 1):
            progress.at(number)
            line = " ".join(line.split())
            if line:
                yield line
        progress.end(number)


def learn(args: argparse.Namespace) -> None:
    """Learn a model and write it; ``args`` is what the command line says."""
    lines = sentences(args.inputs)
    first = next(lines, None)
    if first is None:
        fail("{}: no words to learn from".format(" ".join(args.inputs)))
    part = args.model + ".part"
    os.makedirs(os.path.dirname(args.model) or ".", exist_ok=True)
    sentencepiece.set_random_generator_seed(SEED)
    try:
        with open(part, "wb") as stream:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=itertools.chain([first], lines),
                model_writer=stream,
                model_type=args.type,
                vocab_size=args.vocabulary_size,
                character_coverage=args.character_coverage,
                byte_fallback=args.byte_fallback,
                input_sentence_size=args.sentences,
                shuffle_input_sentence=True,
                unk_id=0,  # the other special symbols are fairseq's
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                minloglevel=2,
            )
        os.replace(part, args.model)
    except OSError as error:
        fail(f"{args.model}: cannot be written ({error.strerror or error})")
    except RuntimeError as error:
        fail(f"--vocabulary-size {args.vocabulary_size}: {_reason(str(error))}")
    finally:
        if os.path.exists(part):
            os.remove(part)


def _reason(message: str) -> str:
    """The error of SentencePiece's trainer, in one line."""
    most = re.search(r"value <= (\d+)", message)
    if most:
        return f"the text gives no more than {most.group(1)}"
    least = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if least:
        return f"the text has {least.group(1)} characters and special symbols; give more"
    return "SentencePiece stopped: " + " ".join(message.split())


def processor(model: str) -> "sentencepiece.SentencePieceProcessor":
    """Read a model."""
    try:
        return sentencepiece.SentencePieceProcessor(model_file=model)
    except (OSError, RuntimeError) as error:
        fail(f"{model}: cannot be read as a model of SentencePiece ({error})")


def segmenter(model: str, lower_case: bool = False) -> Callable[[str], str]:
    """Return a function that splits a line into pieces, separated by spaces.

    Args:
        model: the model's file.
        lower_case: lower-case the line first.
    """
    pieces = processor(model)

    def split(line: str) -> str:
        words = (line.lower() if lower_case else line).split()
        return " ".join(pieces.encode(" ".join(words), out_type=str))

    return split


def joiner(model: str) -> Callable[[str], str]:
    """Return a function that joins pieces, bytes included, to text."""
    pieces = processor(model)

    def join(line: str) -> str:
        found: List[str] = line.split()
        return " ".join(pieces.decode_pieces(found).split())

    return join


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser, learning = learn_or_apply(__doc__, "model", "pieces")
    parser.add_argument("--lower-case", action="store_true", help="lower-case the text to split")
    add = learning.add_argument
    add("--vocabulary-size", type=int, default=8000, metavar="N", help="number of pieces (8000)")
    add("--type", choices=("unigram", "bpe"), default="unigram", help="(unigram)")
    add("--byte-fallback", action="store_true", help="write unknown characters as bytes")
    add(
        "--character-coverage",
        type=float,
        default=0.9999,
        metavar="X",
        help="part of all characters that get pieces (0.9999)",
    )
    add("--sentences", type=int, default=1000000, metavar="N", help="lines to use (1000000)")
    args = parser.parse_args(argv)
    if args.action == "apply":
        map_texts(segmenter, (args.model, args.lower_case), args)
        return
    if args.lower_case:
        fail("--lower-case: is for apply; learn from a lower-cased text")
    if not 0.9 <= args.character_coverage <= 1:
        fail(f"--character-coverage {args.character_coverage}: expected 0.9 to 1")
    for flag in ("vocabulary_size", "sentences"):
        if getattr(args, flag) < 1:
            fail(f"--{flag.replace('_', '-')} {getattr(args, flag)}: expected 1 or more")
    learn(args)


if __name__ == "__main__":
    main()
