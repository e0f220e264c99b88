"""Split texts into the symbols of a model: python symbols.py [--longest N] MODEL OUT TEXT...

MODEL is a folder that `fairseq-posenc pack` wrote; its text preparation is used as a --bpe. Each
TEXT becomes a file with the same name in the folder OUT. Of a line with more than N symbols, only
the last N are kept.
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from fairseq.data.encoders import build_bpe
from fairseq.utils import import_user_module

import fairseq_posenc


def main() -> None:
    """Split the lines of all texts."""
    parser = ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--longest", type=int, default=1_000_000, metavar="N")
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("texts", nargs="+", type=Path)
    args = parser.parse_args()
    import_user_module(Namespace(user_dir=fairseq_posenc.__path__[0]))
    bpe = build_bpe(Namespace(bpe="model_folder", model_folder=args.model))
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.texts:
        with open(path, "rb") as lines, open(args.out / path.name, "wb") as target:
            for line in lines:
                text = line.decode().rstrip("\r\n")
                symbols = bpe.encode(text).split()[-args.longest :]
                if text.strip() and not symbols:
                    sys.exit(f"{args.model}: has no symbol for {text!r}")
                target.write(" ".join(symbols).encode() + b"\n")


if __name__ == "__main__":
    main()
