"""The units in which sentences are measured and compared: words, or characters without spaces."""

import re
from typing import List, Match, Sequence

#: Scripts whose sentences have no spaces: Thai, Lao, Tibetan, Burmese, Khmer, Chinese and Japanese,
#: with their punctuation.
_SPACELESS = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
_SPACELESS += "\U00020000-\U0003ffff"
_UNIT = re.compile(rf"[{_SPACELESS}]|[^\s{_SPACELESS}]+")


def find_units(sentence: str) -> List[Match[str]]:
    """The places of words, and of each character of a script that is written without spaces.

    >>> [found.group() for found in find_units("我爱 fairseq。")]
    ['我', '爱', 'fairseq', '。']
    """
    return list(_UNIT.finditer(sentence))


def units(sentence: str) -> List[str]:
    """Words, and the characters of a script that is written without spaces."""
    return [found.group() for found in find_units(sentence)]


def unit_of(sentences: Sequence[str]) -> str:
    """The unit of length that suits most of the text: ``words`` or ``characters``."""
    spaceless = sum(len(re.findall(f"[{_SPACELESS}]", sentence)) for sentence in sentences)
    every = sum(len(units(sentence)) for sentence in sentences)
    return "characters" if spaceless > every / 2 else "words"
