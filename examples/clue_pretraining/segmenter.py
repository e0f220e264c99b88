"""Word segmentation of Chinese text: with jieba, or by spaces in the text.

Both functions return a function that splits a line into words. To use another segmenter, run it on
the text beforehand and give `--segmented`.
"""

import tempfile
from typing import Callable, Iterable

from text import fail


def jieba_words() -> Callable[[str], Iterable[str]]:
    """Return jieba's segmentation (accurate mode)."""
    try:
        import jieba
    except ImportError:
        fail("jieba is not installed; run: pip install jieba, or give --segmented")
    jieba.setLogLevel("ERROR")
    # jieba caches its dictionary as marshalled Python in the shared temporary folder, where anybody
    # could have written it: give it a private folder.
    with tempfile.TemporaryDirectory() as folder:
        jieba.dt.tmp_dir = folder
        jieba.initialize()
    return jieba.cut


def spaces() -> Callable[[str], Iterable[str]]:
    """Return the segmentation of a text with spaces between words."""
    return str.split
