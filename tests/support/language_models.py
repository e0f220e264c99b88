"""What the tests of the language-model recipe share."""

import random

from support.recipes import EXAMPLES, write

RECIPE = EXAMPLES / "language_model"
PREPARE, TRAIN = (RECIPE / name for name in ("prepare.sh", "train.sh"))


def wikitext(folder, names="wiki.{}.tokens"):
    """A made-up WikiText: 40 and 10 lines, some empty."""
    folder.mkdir()
    draw = random.Random(4)
    for split, count in (("train", 40), ("valid", 10)):
        lines = [
            " " + " ".join(draw.choices(["the", "<unk>", "cat", "@-@", "=", "."], k=5 * (n % 3)))
            for n in range(count)
        ]
        write(folder / names.format(split), lines)
    return folder
