"""Text to symbols as the tokenizer of an imported model makes them.

A folder of the ``transformers`` library describes its tokenizer by a ``tokenizer.json`` or by a
``vocab.txt`` with a ``tokenizer_config.json``.  The tokens are those of that library with
``split_special_tokens``: the name of a special one in a text, such as ``<s>``, is text like any
other.  A tokenizer knows such a name as an added token, which is sought in the text first, and as
an entry of its vocabulary.  Merges of BPE never lead to the entry; the other models take it as they
take a word.  Only the special symbols get the names of fairseq.

Neither PyTorch nor fairseq is imported.
"""

import json
import os
import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.serving.huggingface.vocabulary import (
    BERT,
    JIEBA,
    RESERVED,
    Files,
    find_files,
    read_json,
    read_symbols,
    spelled,
)

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


class Tokenizer(NamedTuple):
    """A tokenizer."""

    split: Callable[[str], List[str]]  # the symbols of a line of text, by fairseq's names
    join: Callable[[List[str]], str]  # the text of symbols
    mask: str  # the spelling in text of the symbol ``<mask>``


def load(folder: str) -> Tokenizer:
    """The tokenizer whose files are in a folder, or a UsageError that says what it lacks."""
    files = find_files(folder)
    names = files.special()
    special = {theirs: ours for ours, theirs in names.items()}
    # tokenizer.json cannot hold the words of jieba, and holds another rule in their place
    if files.kind != JIEBA and os.path.isfile(files.path("tokenizer.json")):
        tokenizer = _from_json(files)
    elif files.kind in (JIEBA, BERT, ""):
        tokenizer = _word_pieces(files)
    else:
        raise UsageError(
            f"{folder}: has a {files.kind}, but no tokenizer.json; save_pretrained of this "
            "tokenizer in transformers writes one"
        )
    spaces = [symbol for symbol in tokenizer.get_vocab() if spelled(symbol) != symbol]
    names.update({spelled(symbol): symbol for symbol in spaces})
    special.update({symbol: spelled(symbol) for symbol in spaces})
    if tokenizer.decoder is None:
        tokenizer.decoder = _package("tokenizers").decoders.WordPiece(cleanup=False)

    def split(line: str) -> List[str]:
        found = tokenizer.encode(line, add_special_tokens=False)
        return [special.get(token, token) for token in found.tokens]

    def join(symbols: List[str]) -> str:
        return tokenizer.decoder.decode([names.get(symbol, symbol) for symbol in symbols])

    return Tokenizer(split, join, names.get("<mask>", "<mask>"))


def description(files: Files) -> Optional[Dict[str, Any]]:
    """The content of tokenizer.json, made from vocab.txt if there is none.

    Returns:
        the content; None for a tokenizer that such a file cannot describe, such as one with words
        of jieba.
    """
    if files.kind == JIEBA:
        return None
    if os.path.isfile(files.path("tokenizer.json")):
        return read_json(files.path("tokenizer.json"))
    if files.kind not in (BERT, ""):
        return None
    tokenizer = _word_pieces(files)
    tokenizer.add_special_tokens(sorted(files.special().values()))
    found: Dict[str, Any] = json.loads(tokenizer.to_str())
    return found


def special_names(files: Files, content: Mapping[str, Any]) -> List[str]:
    """The names of all special symbols of a tokenizer.json, and fairseq's."""
    marked = [t["content"] for t in content.get("added_tokens", ()) if t.get("special")]
    return [*marked, *files.special().values(), *RESERVED]


def _package(module: str) -> Any:
    return import_extra(module, "the tokens of transformers")


def _from_json(files: Files) -> Any:
    tokenizers, path = _package("tokenizers"), files.path("tokenizer.json")
    content = read_json(path)
    try:
        names = special_names(files, content)
        added = [t for t in content.get("added_tokens", ()) if t["content"] not in names]
        content = as_text({**content, "added_tokens": added}, names)
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the package raises nothing more specific
        raise UsageError(f"{path}: is no tokenizer ({error})") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _word_pieces(files: Files) -> Any:
    """BERT's tokenizer, or RoFormer's: words of jieba that are in the vocabulary stay whole."""
    tokenizers = _package("tokenizers")
    symbols, source = read_symbols(files)
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    special = files.special()
    unknown = special.get("<unk>", "[UNK]")
    if unknown not in numbers:
        raise UsageError(f"{source}: has no {unknown!r}, the symbol of unknown words")
    model = tokenizers.models.WordPiece(numbers, unk_token=unknown)
    tokenizer = tokenizers.Tokenizer(model)
    get, words = files.settings.get, files.kind == JIEBA
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=not words and get("tokenize_chinese_chars", True),
        strip_accents=get("strip_accents"),
        lowercase=get("do_lower_case", True),
    )
    splitters = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = splitters.BertPreTokenizer()
    if words:
        _package("rjieba")
        roformer = _package("transformers.models.roformer.tokenization_utils")
        words_of = roformer.JiebaPreTokenizer(numbers)
        tokenizer.pre_tokenizer = splitters.PreTokenizer.custom(words_of)
    return tokenizer
