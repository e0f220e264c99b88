"""Adds pages from outside ``docs/`` to the site, and rewrites links between pages.

Links in pages are paths in the repository. The site has the pages and figures of ``examples/``
under ``recipes/``, and CHANGELOG.md and CONTRIBUTING.md beside the pages of ``docs/``.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

FROM_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
COPIED = (".md", ".png", ".svg")
FENCE = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files, config):
    """Add the pages and figures of ``examples/``, and the pages of the root."""
    root = Path(config.config_file_path).parent
    places = [*FROM_ROOT, *(str(path.relative_to(root)) for path in root.glob("examples/**/*.*"))]
    for place in places:
        if place.endswith(COPIED):
            source = str(root / place)
            files.append(File.generated(config, site_path(place), abs_src_path=source))
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrite the links of a page, outside its blocks of code."""
    own = page.file.src_uri
    known = {file.src_uri for file in files}
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda found: site_link(found, own, known), text) for text in parts[::2]]
    return "".join(parts)


def site_link(found, own, known):
    """Rewrite the link *found* in page *own*; return only its text unless its target is *known*."""
    image, text, target, anchor = found.groups()
    folder = posixpath.dirname(repository_path(own))
    place = site_path(posixpath.normpath(posixpath.join(folder, target)))
    if place not in known:
        return text
    return (
        f"{image}[{text}]({posixpath.relpath(place, posixpath.dirname(own) or '.')}{anchor or ''})"
    )


def site_path(place: str) -> str:
    """The path on the site of a file in the repository."""
    folder, _, rest = place.partition("/")
    if folder in ("docs", "examples"):
        return rest if folder == "docs" else f"recipes/{rest}"
    return FROM_ROOT.get(place, f"../{place}")


def repository_path(page: str) -> str:
    """The path in the repository of a page on the site."""
    folder, _, rest = page.partition("/")
    if folder == "recipes":
        return f"examples/{rest}"
    return next((own for own, site in FROM_ROOT.items() if site == page), f"docs/{page}")
