"""``fairseq-posenc list`` and ``path``: what the plug-in has, and where it is."""

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List

from fairseq_posenc.cli.command import Command, load_plug_in, no_arguments

if TYPE_CHECKING:
    from fairseq_posenc.flags.registry import Registry
    from fairseq_posenc.models import Family

# settings in which presets differ, besides encoding and size
DISTINGUISHING = ("attention", "layer", "norm", "feed_forward", "no_bias", "untie_cls", "causal")


def catalogue() -> str:
    """The registries with their papers, and the architectures with their settings."""
    from fairseq_posenc.attention.base import ATTENTIONS
    from fairseq_posenc.encodings import ENCODINGS
    from fairseq_posenc.exchange import FORMATS
    from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
    from fairseq_posenc.layers.norms import NORMS
    from fairseq_posenc.models import FAMILIES

    lines: List[str] = []
    for title, registry in (
        ("encodings (joined with +, or a pattern over layers such as rotary*3,none)", ENCODINGS),
        ("attentions", ATTENTIONS),
        ("norms", NORMS),
        ("feed-forwards", FEED_FORWARDS),
    ):
        lines += [f"{registry.flag}: {title}", *_entries(registry), ""]
    lines.append("import and export: formats")
    for name, entry in FORMATS.items():
        lines.append(f"  {name:<16} {entry.summary}; {entry.ways}")
    for model, family in FAMILIES.items():
        lines += ["", f"--arch: architectures of {model}, {family.what} (layers x channels)"]
        lines += [f"  {name:<30} {_architecture(family, name)}" for name in family.presets]
    return "\n".join(lines)


def _entries(registry: "Registry[Any]") -> List[str]:
    return [f"  {name:<16} {entry.summary}; {entry.paper}" for name, entry in registry.items()]


def _architecture(family: "Family", name: str) -> str:
    """Encoding, size and settings other than the defaults, of one preset."""
    from fairseq_posenc.configuration.stacks import side_encoding

    preset = family.presets[name]
    if not preset:
        return "no preset: as set by the flags"
    cfg = argparse.Namespace()
    family.complete(cfg, preset, argparse.Namespace())
    stacks, settings = family.stacks(cfg), vars(cfg)
    encodings = dict.fromkeys(side_encoding(cfg, stack.side) for stack in stacks)
    layers = [str(settings[f"{stack.side}_layers"]) for stack in stacks]
    widths = dict.fromkeys(str(settings[f"{stack.side}_embed_dim"]) for stack in stacks)
    heads = dict.fromkeys(str(stack.num_heads) for stack in stacks)
    size = f"{'+'.join(layers)} x {'+'.join(widths)}, heads {'+'.join(heads)}"
    return "; ".join([" + ".join(encodings), size, *_settings(settings, family)])


def _settings(settings: Dict[str, Any], family: "Family") -> List[str]:
    """The settings in :data:`DISTINGUISHING` that differ from the defaults of the family."""
    fields = {field.name: field for field in dataclasses.fields(family.dataclass)}
    shown = []
    for name in DISTINGUISHING:
        value = settings.get(name)
        if name in fields and value != fields[name].metadata.get("default"):
            words = name.replace("_", " ")
            shown.append(words if value is True else f"{words} {value}")
    return shown


def print_catalogue(args: argparse.Namespace) -> None:
    """Print the catalogue."""
    load_plug_in()
    print(catalogue())


def print_path(args: argparse.Namespace) -> None:
    """Print the folder of the package."""
    print(Path(__file__).resolve().parents[1])


COMMANDS = (
    Command(
        "path",
        "print the folder to pass to fairseq's --user-dir",
        'Print the folder to pass to fairseq\'s commands: --user-dir "$(fairseq-posenc path)"',
        no_arguments,
        print_path,
    ),
    Command(
        "list",
        "print architectures, encodings and their papers",
        "Print all values that the plug-in's flags accept: position encodings, attentions, norms,\n"
        "feed-forwards, formats of import and export, and the architectures with their sizes.",
        no_arguments,
        print_catalogue,
    ),
)
