"""Split texts into the symbols of a model: python symbols.py MODEL [LONGEST] < TEXT > SYMBOLS

MODEL is a folder that `fairseq-posenc pack` wrote; its text preparation is a --bpe of fairseq. Of
lines with more than LONGEST symbols, the last ones are kept.
"""

import sys
from argparse import Namespace

from fairseq.data.encoders import build_bpe
from fairseq.utils import import_user_module

import fairseq_posenc


def main(model: str, longest: str = "1000000") -> None:
    """Split the lines of standard input."""
    import_user_module(Namespace(user_dir=fairseq_posenc.__path__[0]))
    bpe = build_bpe(Namespace(bpe="model_folder", model_folder=model))
    for line in sys.stdin.buffer:
        text = line.decode().rstrip("\r\n")
        symbols = bpe.encode(text).split()[-int(longest) :]
        if text.strip() and not symbols:
            sys.exit(f"{model}: has no symbol for {text!r}")
        sys.stdout.buffer.write(" ".join(symbols).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
