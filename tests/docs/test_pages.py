"""Pages are complete on GitHub and agree with the code; examples in docstrings work."""

import argparse
import contextlib
import doctest
import functools
import importlib
import importlib.util
import pkgutil
import re
import shlex
from collections import Counter

import pytest
from support.commands import ROOT
from support.own_extensions import registries_as_before

import fairseq_posenc
from fairseq_posenc.basics.packages import EXTRAS
from fairseq_posenc.cli import get_parser
from fairseq_posenc.encodings import ENCODINGS

DOCS = sorted(ROOT.glob("docs/**/*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS, *sorted(ROOT.glob("examples/**/*.md"))]
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
MEASURED = re.compile(r"^## (?:What was m|M)easured.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def name(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """The text of a page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=None)
def anchors(page):
    """GitHub's anchors of the headings: lower case, no punctuation, hyphens for spaces."""
    seen, found = Counter(), set()
    for heading in re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE):
        text = re.sub(r"<[^>]+>|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings(page):
    for link, anchor in LINK.findall(prose(page)):
        if re.match(r"\w+:", link):
            continue
        target = (page.parent / link).resolve() if link else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_need_no_site(page):
    text = prose(page)
    for mark in ("--8<--", r"\(", r"\[", "{#", "!!!", "???"):
        assert mark not in text, mark
    for formula in re.findall(r"\$\$.*?\$\$|(?<![\w$])\$[^$`\n]+\$", text, re.DOTALL):
        assert not re.search(r"\\[^a-zA-Z]", formula), f"GitHub drops the backslash: {formula}"
    for section in MEASURED.findall(text):
        assert re.search(r"\b0\.\d+\.\d+\b", section), "measured with which version?"


def test_readme_and_pages_are_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in DOCS) <= 18000


def test_every_encoding_acts_somewhere():
    text = (ROOT / "docs" / "encodings.md").read_text(encoding="utf-8")
    (rows,) = re.findall(r"^\| where it acts.*\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", rows)) == sorted(set(ENCODINGS) - {"none"})


def module(file):
    """Import a hook of the site from docs/."""
    spec = importlib.util.spec_from_file_location(file, ROOT / "docs" / f"{file}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_site_has_formulas_without_scripts():
    pytest.importorskip("latex2mathml")
    content = r'<p><span class="arithmatex">\(a \lt b\)</span></p>'
    assert module("formulas").on_page_content(content, None, None, None).startswith("<p><math")


def test_the_site_has_tables_of_what_is_registered():
    hook = module("generated")
    asked = {each for page in DOCS for each in hook.LINE.findall(page.read_text(encoding="utf-8"))}
    made = {each: hook.table(each) for each in asked}
    assert {each.split()[0] for each in asked} == set(hook.TABLES)
    for text in made.values():
        assert len({line.count(" | ") for line in text.splitlines()}) == 1, text
    linked = dict(re.findall(r"\[`(\w+)`\]\(api/([\w/]+)\.md\)", "".join(made.values())))
    assert set(ENCODINGS) <= set(linked)  # the site drops links to missing pages
    assert all((ROOT / f"{path}.py").is_file() for path in linked.values()), linked
    assert "`--local-window` | `local` |" in made["flags"]
    assert "roformer_base" in made["presets"] and "hf-roberta" in made["formats"]
    assert "`--local-window`" in made["flags local"] and "`--norm`" not in made["flags local"]


def printed_commands(page):
    """The fairseq-posenc commands in a page's code blocks, as lists of words."""
    for block in FENCE.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(r" *fairseq-posenc [a-z]", line):
                with contextlib.suppress(ValueError):  # a quotation over several lines
                    yield shlex.split(line, comments=True)[1:]


def options_of(words):
    """The options of the command, or subcommand such as ``plot training``, that *words* call."""
    parser = get_parser(words[0])
    for word in words:
        parts = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if not parts:
            break
        parser = parts[0].choices[word]
    if parser.late is not None:  # with the flags of all formats
        parser.late([])
    return {name: action for action in parser._actions for name in action.option_strings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_printed_commands_and_programs_are_there(page):
    for words in printed_commands(page) if "results" not in page.parts else ():
        known = options_of(words)
        for before, word in zip(words, words[1:]):
            # further words are for another command
            if word == "--" or words[0] == "script" or words[:2] == ["reading", "windows"]:
                break
            is_value = before in known and known[before].nargs is None
            assert is_value or not word.startswith("--") or word in known, f"{words} {word}"
    blocks = " ".join(FENCE.findall(page.read_text(encoding="utf-8")))
    for path in re.findall(r"(?<![\w./$])(?:scripts|examples)/[\w./]+\.(?:py|sh|sbatch)\b", blocks):
        assert (ROOT / path).is_file(), path


# --- docstrings


OPTIONAL = {extra.module for extra in EXTRAS}
LEAST = 10  # the least number of objects with examples


def package_modules():
    """Every module of the package, except those whose optional packages are not installed."""
    found = [fairseq_posenc]
    for info in pkgutil.walk_packages(fairseq_posenc.__path__, "fairseq_posenc."):
        if info.name == "fairseq_posenc.__main__":
            continue
        try:
            found.append(importlib.import_module(info.name))
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in OPTIONAL:
                raise
    return found


def examples_of(module):
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(module) if test.examples]


def test_examples_of_docstrings():
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    reports, named = [], set()
    with registries_as_before():  # an example of ``register_encoding`` adds an encoding
        for module in package_modules():
            for test in examples_of(module):
                named.add(test.name)
                runner.run(test, out=reports.append)
    assert not runner.summarize(verbose=False).failed, "".join(reports)
    assert len(named) >= LEAST, sorted(named)
