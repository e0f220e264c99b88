"""Links of pages: as GitHub follows them in the repository, and as the site has them.

``docs/recipes`` is a link to ``examples``, which GitHub does not follow, so pages link to the files
where they are. The site has the pages of ``examples`` under ``recipes``.
"""

import posixpath
import re

_UPWARDS = re.compile(r"(?<=\]\()\.\./[^)#\s]*")
_PLACES = {"examples": "recipes", "docs": ""}  # a folder of the repository, and of the site


def on_page_markdown(markdown, page, config, files):
    """Rewrite the links of a page, for mkdocs."""
    folder = posixpath.dirname(page.file.src_uri)
    return _UPWARDS.sub(lambda found: site_link(found[0], folder), markdown)


def site_link(link: str, folder: str) -> str:
    """A link that leads upwards, from a page of the site.

    Args:
        link: as it stands in the file, without an anchor.
        folder: the folder of the page on the site.
    """
    first, _, rest = folder.partition("/")
    own = posixpath.join("examples", rest) if first == "recipes" else posixpath.join("docs", folder)
    top, _, below = posixpath.normpath(posixpath.join(own, link)).partition("/")
    if top not in _PLACES:
        return link
    return posixpath.relpath(posixpath.join("/", _PLACES[top], below), posixpath.join("/", folder))
