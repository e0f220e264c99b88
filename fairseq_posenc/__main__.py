"""``python -m fairseq_posenc {path,list,doctor}``."""

import argparse
import sys
from pathlib import Path
from typing import List, Optional


def main(argv: Optional[List[str]] = None) -> int:
    """Run one of the commands; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_posenc", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("path", help="print what to give to fairseq's --user-dir")
    commands.add_parser("list", help="print the architectures and encodings with their papers")
    commands.add_parser("doctor", help="check this installation and name the fix for what is wrong")
    command = parser.parse_args(argv).command
    if command == "path":
        print(Path(__file__).resolve().parent)
        return 0
    if command == "doctor":
        from fairseq_posenc.doctor import examine, report

        return report(examine())
    print(catalogue())
    return 0


def catalogue() -> str:
    """Encodings and architectures, one a line."""
    from fairseq_posenc import register
    from fairseq_posenc.encodings import ENCODINGS

    register()
    from fairseq_posenc.models import FAMILIES

    lines = ["encodings (--position-encoding, joined with +)"]
    lines += [f"  {e.name:<14} {e.summary}; {e.paper}" for e in ENCODINGS.values()]
    for model, family in FAMILIES.items():
        lines += ["", f"architectures of {model} (--arch)"]
        for name, preset in family.presets.items():
            encoding = preset.get("position_encoding", "chosen by --position-encoding")
            encoding += ", [CLS] untied" if preset.get("untie_cls") else ""
            encoding += f", --attention {preset['attention']}" if "attention" in preset else ""
            lines.append(f"  {name:<31} {encoding}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
