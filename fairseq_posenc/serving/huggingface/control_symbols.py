"""Names of special symbols in a user's text, such as ``<s>``, which are text like any other.

A tokenizer of the ``tokenizers`` library knows such a name in two ways: as an added token, which is
sought in the text first, and as an entry of its vocabulary.  Merges of BPE never lead to the entry;
the other models take it as they take a word.
"""

import re
from typing import Any, Dict, Iterable, Mapping

_LAST = re.compile(r"(.+?)(\d+|.)", re.DOTALL)


def cut(names: Iterable[str]) -> Dict[str, Any]:
    """A tokenizer.json entry that splits *names* in a text before their last character or number.

    It could split only a piece that holds a letter together with the sign at its end.

    >>> cut(["</s>", "s"])["pattern"]
    {'Regex': '(?<=</s)(?=>)'}
    """
    parts = [found.groups() for found in map(_LAST.fullmatch, sorted(set(names))) if found]
    places = [f"(?<={re.escape(start)})(?={re.escape(end)})" for start, end in parts]
    pattern = {"Regex": "|".join(places)}
    return {"type": "Split", "pattern": pattern, "behavior": "Removed", "invert": False}


def as_text(content: Mapping[str, Any], names: Iterable[str]) -> Dict[str, Any]:
    """A tokenizer.json whose vocabulary is not searched for *names*; its added tokens stay."""
    if "merges" in content["model"]:
        return dict(content)
    before = content.get("pre_tokenizer")
    steps = [*([before] if before else []), cut(names)]
    return {**content, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
