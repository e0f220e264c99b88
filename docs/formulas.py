"""Formulas of pages and docstrings as MathML, which browsers draw without scripts or a network."""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?:span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</(?:span|div)>', re.DOTALL
)


def on_page_content(content, page, config, files):
    """Replace the formulas that the Markdown extension has marked."""
    return FORMULA.sub(mathml, content)


def mathml(found: "re.Match[str]") -> str:
    """One formula, in the line or on a line of its own."""
    return convert(html.unescape(found[2]), display="inline" if found[1] == "(" else "block")
