"""All values that the plug-in's flags accept, one per line."""

import dataclasses
from argparse import Namespace
from typing import Any, Dict, List

from fairseq_posenc.attention.registry import ATTENTIONS
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.exchange import FORMATS
from fairseq_posenc.flags.registry import Registry
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.layers.norms import NORMS
from fairseq_posenc.models import FAMILIES, Family

# settings in which presets differ, besides encoding and size
DISTINGUISHING = ("attention", "layer", "norm", "feed_forward", "no_bias", "untie_cls", "causal")


def catalogue() -> str:
    """The registries with their papers, and the architectures with their settings."""
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


def _entries(registry: Registry[Any]) -> List[str]:
    return [f"  {name:<16} {entry.summary}; {entry.paper}" for name, entry in registry.items()]


def _architecture(family: Family, name: str) -> str:
    """Encoding, size and settings other than the defaults, of one preset."""
    preset = family.presets[name]
    if not preset:
        return "no preset: as set by the flags"
    cfg = Namespace()
    family.complete(cfg, preset, Namespace())
    stacks, settings = family.stacks(cfg), vars(cfg)
    encodings = dict.fromkeys(side_encoding(cfg, stack.side) for stack in stacks)
    layers = [str(settings[f"{stack.side}_layers"]) for stack in stacks]
    widths = dict.fromkeys(str(settings[f"{stack.side}_embed_dim"]) for stack in stacks)
    heads = dict.fromkeys(str(stack.num_heads) for stack in stacks)
    size = f"{'+'.join(layers)} x {'+'.join(widths)}, heads {'+'.join(heads)}"
    return "; ".join([" + ".join(encodings), size, *_settings(settings, family)])


def _settings(settings: Dict[str, Any], family: Family) -> List[str]:
    """The settings in :data:`DISTINGUISHING` that differ from the defaults of the family."""
    fields = {field.name: field for field in dataclasses.fields(family.dataclass)}
    shown = []
    for name in DISTINGUISHING:
        value = settings.get(name)
        if name in fields and value != fields[name].metadata.get("default"):
            words = name.replace("_", " ")
            shown.append(words if value is True else f"{words} {value}")
    return shown
