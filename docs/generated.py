"""Tables of flags, presets, formats and commands, made from the registries when the site is built.

In a page, such a table is a line that ends with ``<!-- table: NAME -->``.  GitHub shows the line,
which names a command that prints the same facts; the site shows the table.  ``table: flags gau``
is the table of the flags that begin with ``--gau``.
"""

import dataclasses
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

LINE = re.compile(r"^.*<!-- table: ([\w -]+) -->$", re.MULTILINE)
MADE = {}


def on_config(config):
    """Make all tables in another process, since importing fairseq changes a process's logging."""
    pages = Path(config.docs_dir).rglob("*.md")
    found = sorted({name for page in pages for name in LINE.findall(page.read_text("utf-8"))})
    command = [sys.executable, __file__, *found]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[1]
    )
    MADE.update(json.loads(done.stdout))


def on_page_markdown(markdown, page, config, files):
    """Replace each line that ends with a table's comment by the table."""
    to_root = "../" * page.file.src_uri.count("/")
    made = {name: text.replace("](api/", f"]({to_root}api/") for name, text in MADE.items()}
    return LINE.sub(lambda found: made[found[1]], markdown)


def table(name):
    """The table *name* in Markdown, with links relative to the root of the site."""
    import_module("fairseq_posenc").register()
    kind, *arguments = name.split()
    head, rows = TABLES[kind](*arguments)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def registries():
    """Map each flag whose values are registered names to its registry."""
    features = import_module("fairseq_posenc.configuration.features").FEATURES
    return {
        registry.flag: registry
        for registry in (
            import_module("fairseq_posenc.encodings").ENCODINGS,
            import_module("fairseq_posenc.attention.base").ATTENTIONS,
            *(registry for feature in features for registry in feature.registries),
        )
    }


def names(flag):
    """A row for each entry of a flag's registry: its name with a link, its summary, its paper."""
    rows = []
    for name, entry in registries()[flag].items():
        thing = getattr(entry, "acts", None) or getattr(entry, "thing", None)
        module = getattr(thing, "__module__", "")
        link = f"[`{name}`](api/{module.replace('.', '/')}.md)" if module else f"`{name}`"
        rows.append([link, entry.summary.replace("|", "\\|"), entry.paper])
    return ["name", "what it is", "paper"], rows


def presets():
    """A row for each architecture: name, family, encoding, sizes and other settings."""
    describe = import_module("fairseq_posenc.cli.installation")._architecture
    families = import_module("fairseq_posenc.models").FAMILIES
    rows = [
        [f"`{name}`", family.what, describe(family, name)]
        for family in families.values()
        for name in family.presets
    ]
    return ["`--arch`", "family", "encoding; layers x channels, heads; other settings"], rows


def flags(*starts):
    """The flags that begin with one of *starts*, each with the registry entry that declares it."""
    families = import_module("fairseq_posenc.models").FAMILIES
    owner = {
        field.name: entry.name
        for registry in registries().values()
        for entry in registry.values()
        if entry.flags is not None
        for field in dataclasses.fields(entry.flags)
    }
    found = {
        field.name: field.metadata
        for family in families.values()
        for field in dataclasses.fields(family.dataclass)
        if "traceable" in field.metadata and field.name.replace("_", "-").startswith(starts or "")
    }
    rows = [
        [
            f"`--{name.replace('_', '-')}`",
            f"`{owner[name]}`" if name in owner else "",
            re.sub(r"[|*_<>]", r"\\\g<0>", metadata["help"]),
            metadata["role"],
        ]
        for name, metadata in sorted(found.items())
    ]
    return ["flag", "belongs to", "what it does", "role"], rows


def formats():
    """The formats of import and export."""
    found = import_module("fairseq_posenc.exchange").FORMATS
    rows = [[f"`{name}`", entry.summary, entry.ways] for name, entry in found.items()]
    return ["format", "what it is", "ways"], rows


def commands():
    """The commands of ``fairseq-posenc``."""
    found = import_module("fairseq_posenc.cli").commands()
    return ["command", "what it does"], [[f"`{each.name}`", each.summary] for each in found]


TABLES = {
    "encodings": lambda: names("--position-encoding"),
    "attentions": lambda: names("--attention"),
    "rules": lambda: names("--position-ids"),
    "presets": presets,
    "flags": flags,
    "formats": formats,
    "commands": commands,
}

if __name__ == "__main__":
    print(json.dumps({name: table(name) for name in sys.argv[1:]}))
