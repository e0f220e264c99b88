"""Converts formulas to MathML, which browsers draw without scripts or a network."""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?:span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</(?:span|div)>', re.DOTALL
)


def on_page_content(content, page, config, files):
    """Replace the formulas that the Markdown extension arithmatex has marked."""
    return FORMULA.sub(mathml, content)


def mathml(found: "re.Match[str]") -> str:
    """A formula as MathML, inline or as a block."""
    return convert(html.unescape(found[2]), display="inline" if found[1] == "(" else "block")
