"""Pages of the documentation: links lead to files as GitHub follows them, includes are whole."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")]
LINK = re.compile(r"\]\(([^)#\s]+)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_includes_lead_to_files(page):
    text = page.read_text(encoding="utf-8")
    for link in LINK.findall(FENCE.sub("", text)):
        if not re.match(r"\w+:", link):
            target = page.parent / link
            assert target.exists(), link
            assert not link.startswith("recipes/"), f"{link}: GitHub follows no link to a folder"
    for line in (
        re.findall(r"^.*8\s*<.*$", text, re.MULTILINE) if page.parent.name == "docs" else ()
    ):
        place, _, section = re.fullmatch(r'--8<-- "([^:"]+)(:?)([\w-]*)"', line).groups()
        assert f"[start:{section}]" in (ROOT / place).read_text(encoding="utf-8") or not section


def test_the_site_has_the_pages_of_examples_under_recipes():
    spec = importlib.util.spec_from_file_location("links", ROOT / "docs" / "links.py")
    links = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(links)
    for link, folder, expected in (
        ("../examples/glue/README.md", "", "recipes/glue/README.md"),
        ("../../docs/study.md", "recipes/glue", "../../study.md"),
        ("../study/README.md", "recipes/glue", "../study/README.md"),
        ("../CHANGELOG.md", "", "../CHANGELOG.md"),
    ):
        assert links.site_link(link, folder) == expected
