#!/usr/bin/env python3
"""Write a dict.txt with all pieces of a SentencePiece model, in the model's order.

python all_pieces.py MODEL DICT
"""

import sys
from pathlib import Path

from sentencepiece import SentencePieceProcessor


def main():
    file, dictionary = sys.argv[1:]
    model = SentencePieceProcessor(model_file=file)
    numbers = [n for n in range(len(model)) if not (model.is_control(n) or model.is_unknown(n))]
    lines = "".join(f"{model.id_to_piece(number)} 1\n" for number in numbers)
    Path(dictionary).write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
