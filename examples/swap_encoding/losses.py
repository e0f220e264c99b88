"""Print what another position encoding costs a trained model, from the logs of swap.sh.

python losses.py FOLDER
"""

import argparse
from pathlib import Path

from fairseq_posenc.study.logs import last_losses, read_training, validated, won_back


def main() -> None:
    """Print a row for each validation, and the update at which the loss is won back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the OUT of swap.sh")
    folder = parser.parse_args().folder
    original = last_losses(folder / "original.log")["loss"]
    found = read_training(folder)
    losses = validated(found["curve"])
    print(f"trained: {found['trained']:,} of {found['parameters']:,} parameters")
    print("update\tvalidation loss\tmore than the model's")
    print(f"model\t{original:.3f}\t")
    for update, loss in losses.items():
        print(f"{update}\t{loss:.3f}\t{loss - original:+.3f}")
    back = won_back(losses, original)
    print("not won back yet" if back is None else f"won back at update {back}")


if __name__ == "__main__":
    main()
