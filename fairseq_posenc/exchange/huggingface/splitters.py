"""Conversion of a model's subwords to a ``tokenizer.json`` that splits text in the same way.

fairseq reads a subword that the dictionary lacks as ``<unk>``.  A tokenizer has a number for every
subword, so such subwords get numbers after the dictionary's, and the embedding of ``<unk>``.
"""

import base64
import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_object, read_lines
from fairseq_posenc.exchange.huggingface import sentencepiece_file as spm
from fairseq_posenc.exchange.reader import LEADING, MASK
from fairseq_posenc.serving.preparation import Text
from fairseq_posenc.serving.transformers_tokenizer import (
    as_text,
    find_files,
    special_names,
    spelled,
)


def replace(pattern: str, content: str) -> Dict[str, Any]:
    """A step of tokenizer.json that replaces each match of *pattern* with *content*."""
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


#: Python, and thus fairseq, treats these characters as spaces; tokenizer.json does not.
SEPARATORS = replace(r"[\x1c-\x1f]", " ")
_END_OF_WORD, _MARK, _SPACE = "</w>", "@@", "\u2581"
_VERSION = "#version: 0.2"
#: Lower-cases a Σ that ends a word; the step ``Lowercase`` does not see where words end.
_LAST_SIGMA = replace(r"(?<=[\p{Lu}\p{Ll}])Σ(?!\p{L})", "ς")
_STRANGE = (
    "{} symbols of dict.txt are runs of characters that the SentencePiece model does not know; the "
    "tokenizer splits a longer run into such symbols, but fairseq reads a longer run as <unk>"
)


class Splitter(NamedTuple):
    """The content of a tokenizer that splits text into symbols and joins symbols to text."""

    # entries of tokenizer.json: ``model``, with the number of each symbol, and the other steps
    content: Dict[str, Any]
    # symbols with numbers after the dictionary; they stand for ``<unk>``
    hidden: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()  # what the user should know
    # an equivalent SentencePiece file, for programs that do not read tokenizer.json, or None
    sentencepiece: Optional[bytes] = None


#: The steps of tokenizer.json that split text at spaces.
_AT_SPACES = {"normalizer": SEPARATORS, "pre_tokenizer": {"type": "WhitespaceSplit"}}


def split_at_spaces(symbols: List[str]) -> Splitter:
    """The splitter for text in which spaces separate the symbols."""
    number = {symbol: index for index, symbol in enumerate(symbols)}
    note = "the tokenizer splits text at spaces, into symbols of dict.txt, as fairseq does"
    model = {"type": "WordLevel", "vocab": number, "unk_token": "<unk>"}
    return Splitter({**_AT_SPACES, "model": model}, (), (note,))


class Inexact(Exception):
    """No tokenizer.json can split text as in training; the message says why."""


def _numbered(symbols: List[str], others: Iterable[str]) -> Dict[str, int]:
    """Number the symbols of fairseq's dictionary first, then the *others*."""
    return {symbol: number for number, symbol in enumerate(dict.fromkeys([*symbols, *others]))}


def _subword_nmt(path: str, symbols: List[str]) -> Splitter:
    """Splitter for subword-nmt: merges mark a word's last piece, but symbols mark all others."""
    lines = list(read_lines(path))
    if not lines or lines[0].strip() != _VERSION:
        raise Inexact(f"the merges do not begin with {_VERSION}")
    merges = [tuple(line.split()) for line in lines[1:] if line.strip()]
    if any(len(pair) != 2 for pair in merges):
        raise UsageError(f"{path}: cannot be read as merges of subword-nmt (a line is not a pair)")
    pieces = dict(zip(LEADING, LEADING))
    for symbol in symbols[len(LEADING) :]:
        inner = symbol.endswith(_MARK) and symbol != _MARK
        pieces.setdefault(symbol[: -len(_MARK)] if inner else symbol + _END_OF_WORD, symbol)
    for piece in (piece for a, b in merges for piece in (a, b, a + b)):
        pieces.setdefault(piece, piece if piece.endswith(_END_OF_WORD) else piece + _MARK)
    numbers = _numbered(symbols, pieces.values())
    model = {
        "type": "BPE",
        "vocab": {piece: numbers[symbol] for piece, symbol in pieces.items()},
        "merges": [f"{a} {b}" for a, b in dict.fromkeys(merges)],
        "unk_token": "<unk>",
        "end_of_word_suffix": _END_OF_WORD,
        **dict.fromkeys(("dropout", "continuing_subword_prefix")),
        **dict.fromkeys(("fuse_unk", "byte_fallback"), False),
    }
    decoder = {"type": "BPEDecoder", "suffix": _END_OF_WORD}
    content = {**_AT_SPACES, "model": model, "decoder": decoder}
    return Splitter(content, tuple(numbers)[len(symbols) :])


def _sentencepiece(path: str, symbols: List[str]) -> Splitter:
    """The splitter for a unigram or BPE model of SentencePiece."""
    model = spm.read_model(path)
    rules, trained = model.normalizer_spec, model.trainer_spec
    marked_first = rules.escape_whitespaces and not trained.treat_whitespace_as_suffix
    if trained.model_type not in (spm.UNIGRAM, spm.BPE) or not marked_first:
        raise Inexact("its SentencePiece model must be unigram or BPE, and put ▁ before words")
    if any(piece.type == spm.USER_DEFINED for piece in model.pieces):
        raise Inexact("the SentencePiece model has user-defined symbols")
    known = [piece for piece in model.pieces if piece.type in (spm.NORMAL, spm.BYTE)]
    numbers = _numbered(symbols, (piece.piece for piece in known))
    strange = len(set(symbols[len(LEADING) :]) - {p.piece for p in known} - _fillers(symbols))
    notes = () if not strange else (_STRANGE.format(strange),)
    make = spm.unigram if trained.model_type == spm.UNIGRAM else spm.merged
    steps = [SEPARATORS, replace(r"\s+", " ")]
    if not rules.remove_extra_whitespaces:  # lines are stripped before they are split
        steps.append(replace("^ | $", ""))
    if rules.precompiled_charsmap:
        charsmap = base64.b64encode(rules.precompiled_charsmap).decode("ascii")
        # ``Precompiled`` looks up a letter and its accents as one unit if they take few bytes, and
        # then loses the accents that no rule combines with the letter
        composed = [{"type": "NFC"}] if "nfkc" in rules.name else []
        steps += [*composed, {"type": "Precompiled", "precompiled_charsmap": charsmap}, *composed]
    if rules.remove_extra_whitespaces:
        steps += [replace(" {2,}", " "), replace("^ | $", "")]
    if rules.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": _SPACE})
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    if rules.remove_extra_whitespaces:  # a text can contain ▁ itself
        steps.append(replace(f"{_SPACE}+$", ""))
    joined = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    parts: List[Dict[str, Any]] = [joined, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if rules.add_dummy_prefix:
        parts.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unread = {*LEADING, MASK, *_fillers(symbols), *(p.piece for p in known if p.type == spm.BYTE)}
    content = {
        "model": make(model, numbers),
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "decoder": {"type": "Sequence", "decoders": parts},
    }
    same = spm.renumbered(model, numbers) if trained.model_type == spm.BPE else None
    return Splitter(as_text(content, unread), tuple(numbers)[len(symbols) :], notes, same)


def _fillers(symbols: List[str]) -> Set[str]:
    """The symbols with which fairseq fills up a dictionary."""
    return {symbol for symbol in symbols if symbol.startswith("madeupword")}


def _of_transformers(path: str, symbols: List[str]) -> Splitter:
    """The splitter of a folder's tokenizer.json, with fairseq's numbers and special symbols."""
    file = os.path.join(path, "tokenizer.json")
    if not os.path.isfile(file):
        raise Inexact("the model's tokenizer has no tokenizer.json")
    files, content = find_files(path), read_json_object(file, f"{file}:")
    ours = {theirs: name for name, theirs in files.special().items()}
    content = as_text(content, [*special_names(files, content), *_fillers(symbols)])
    model = dict(content["model"])
    scored = isinstance(model["vocab"], list)
    listed = [name for name, _ in model["vocab"]] if scored else list(model["vocab"])
    tokens = {token["content"]: token for token in content.get("added_tokens", ())}
    kept = {name: token for name, token in tokens.items() if name not in ours}
    theirs = {spelled(name): name for name in (*listed, *kept)}  # renames runs of spaces
    numbers = _numbered(symbols, (ours.get(name, spelled(name)) for name in (*listed, *kept)))
    if scored:
        scores = {ours.get(name, name): score for name, score in model["vocab"]}
        least = min(scores.values(), default=0.0)
        names = (theirs.get(name, name) for name in numbers)
        model["vocab"] = [[name, scores.get(name, least)] for name in names]
        model["unk_id"] = numbers["<unk>"]
    else:
        model["vocab"] = {theirs.get(name, name): number for name, number in numbers.items()}
        if model.get("unk_token") in ours:
            model["unk_token"] = ours[model["unk_token"]]
    usual = {"type": "WordPiece", "prefix": "##", "cleanup": False}
    content.update(
        model=model,
        decoder=content.get("decoder") or usual,
        added_tokens=[{**t, "id": numbers[spelled(name)]} for name, t in kept.items()],
    )
    return Splitter(content, tuple(numbers)[len(symbols) :])


#: For each kind of subwords, a function that makes a splitter from a file and the dictionary.
SPLITTERS: Mapping[str, Callable[[str, List[str]], Splitter]] = {
    "none": lambda path, symbols: split_at_spaces(symbols),
    "subword-nmt": _subword_nmt,
    "sentencepiece": _sentencepiece,
    "transformers": _of_transformers,
}


class Subwords(NamedTuple):
    """The preparation of a model's text, with the paths of its files."""

    text: Text
    source: Optional[str]  # the subword file of the source
    target: Optional[str]  # the subword file of the target


def splitter_of(
    subwords: Optional[Subwords], side: str, symbols: List[str], hides: bool
) -> Splitter:
    """The splitter for one side of a model; its notes say what the user has to do.

    Args:
        subwords: how the model's text was prepared, or None to split text at spaces.
        hides: whether the exported class can be kept from producing some of its symbols.
    """
    if subwords is None:
        return split_at_spaces(symbols)
    text = subwords.text
    path = subwords.source if side == "encoder" else subwords.target
    try:
        if text.subwords not in SPLITTERS:
            raise Inexact(f"--subwords {text.subwords} has no counterpart in tokenizer.json")
        found = SPLITTERS[text.subwords](str(path), symbols)
        if found.hidden and not hides:
            raise Inexact(
                f"the dictionary lacks {len(found.hidden)} of the subwords, such as "
                f"{found.hidden[0]!r}, and the class would produce them"
            )
    except Inexact as reason:
        found = split_at_spaces(symbols)
        return found._replace(notes=(*found.notes, f"text is not split into subwords: {reason}"))
    content, notes = found.content, [*found.notes]
    if text.tokenizer != "none":
        notes.append(
            f"the tokenizer expects text split into words: apply --tokenizer {text.tokenizer} to "
            "inputs, and undo it in outputs"
        )
    if text.lowercase:
        steps = [_LAST_SIGMA, {"type": "Lowercase"}, content.get("normalizer")]
        content = {**content, "normalizer": {"type": "Sequence", "normalizers": steps}}
        found = found._replace(sentencepiece=None)  # a SentencePiece model has no such step
    return found._replace(content=content, notes=tuple(notes))
