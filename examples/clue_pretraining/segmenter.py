"""Where the words of a Chinese text end: jieba, or spaces that are there already.

Both functions return the function from a line to its words. Another segmenter needs no code: run
it on the text and give `--segmented`.
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
    # jieba keeps its dictionary as marshalled Python in the folder for temporary files, and reads
    # there what anybody may have written: give it a folder of its own.
    with tempfile.TemporaryDirectory() as folder:
        jieba.dt.tmp_dir = folder
        jieba.initialize()
    return jieba.cut


def spaces() -> Callable[[str], Iterable[str]]:
    """Return the segmentation of a text whose words are separated by spaces."""
    return str.split
