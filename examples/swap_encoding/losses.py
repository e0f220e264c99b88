"""Print the losses of a trained model with another position encoding, from the logs of run.sh.

python losses.py FOLDER
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, List

SIZES = re.compile(r"num\. shared model params: ([\d,]+) \(num\. trained: ([\d,]+)\)")


def fields_of(line: str) -> Dict[str, Any]:
    """The JSON object in a line of fairseq's log; empty if there is none."""
    start = line.find('{"')
    try:
        return dict(json.loads(line[start:])) if start >= 0 else {}
    except ValueError:
        return {}


def main() -> None:
    """Print each validation loss, and the update at which the original loss is reached again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the SAVE_DIR of run.sh")
    folder = parser.parse_args().folder
    logs: List[List[str]] = []
    for path in (folder / "original.log", folder / "train.log"):
        if not path.is_file():
            sys.exit(f"{path}: no such file; run run.sh first")
        logs.append(path.read_text(encoding="utf-8", errors="replace").split("\n"))
    validated = [found for found in map(fields_of, logs[0]) if "valid_loss" in found]
    sizes = [match.groups() for match in map(SIZES.search, logs[1]) if match]
    losses = {
        int(float(found["valid_num_updates"])): float(found["valid_loss"])
        for found in map(fields_of, logs[1])
        if "valid_loss" in found
    }
    if not (validated and sizes and losses):
        sys.exit(f"{folder}: its logs are incomplete; run run.sh again")
    original = float(validated[-1]["valid_loss"])
    print(f"trained: {sizes[-1][1]} of {sizes[-1][0]} parameters")
    print("update\tvalidation loss\tmore than the model's")
    print(f"model\t{original:.3f}\t")
    for update, loss in sorted(losses.items()):
        print(f"{update}\t{loss:.3f}\t{loss - original:+.3f}")
    back = min((update for update, loss in losses.items() if loss <= original), default=None)
    print("not won back yet" if back is None else f"won back at update {back}")


if __name__ == "__main__":
    main()
