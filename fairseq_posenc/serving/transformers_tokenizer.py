"""Tokenizers of the ``transformers`` library: their symbols, and how they split text into symbols.

A tokenizer's folder has its symbols in ``vocab.txt`` or ``tokenizer.json``, and the roles of the
special symbols in ``tokenizer_config.json``.  Text is split as in the library with
``split_special_tokens``: if a text has the name of a special symbol, such as ``<s>``, the name is
ordinary text.  Without this, the name would become the special symbol: the library searches for
added tokens first, and for words in the vocabulary (except in BPE, where no merges produce it).
Special symbols get fairseq's names; other symbols keep their own names.

Neither PyTorch nor fairseq is imported.
"""

import json
import os
import re
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_object, read_lines
from fairseq_posenc.basics.packages import import_extra

#: fairseq's symbol, its role in tokenizer_config.json, and its usual name in transformers.
ROLES = (
    ("<s>", "cls_token", "[CLS]"),
    ("<pad>", "pad_token", "[PAD]"),
    ("</s>", "sep_token", "[SEP]"),
    ("<unk>", "unk_token", "[UNK]"),
    ("<mask>", "mask_token", "[MASK]"),
)
#: The roles in a language model's tokenizer; all but ``</s>``, the end of a text, may be missing.
_CAUSAL_ROLES = {
    **{"</s>": "eos_token", "<pad>": "pad_token", "<s>": "bos_token"},
    **{"<unk>": "unk_token", "<mask>": "mask_token"},
}
#: Symbols that fairseq keeps for itself.
RESERVED = frozenset(ours for ours, _, _ in ROLES)
JIEBA, BERT, _ROBERTA = "RoFormerTokenizer", "BertTokenizer", "RobertaTokenizer"
#: The class of the tokenizer, keyed by ``model_type`` in config.json, as in the library.
_BY_MODEL = {"roformer": JIEBA, "roberta": _ROBERTA}
_SPACE = "\u2423"
#: The start of messages on missing packages: what needs them.
_FOR = "tokenizers of transformers"
_LAST = re.compile(r"(.+?)(\d+|.)", re.DOTALL)
#: Names of the files that describe a tokenizer.
FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "config.json")


class Files(NamedTuple):
    """The files of a tokenizer."""

    folder: str  # the folder with the files
    settings: Dict[str, Any]  # the settings of tokenizer_config.json
    kind: str  # name of its class, without ``Fast``; empty if no file names it

    def path(self, name: str) -> str:
        """The path of a file in the folder."""
        return os.path.join(self.folder, name)

    def special(self) -> Dict[str, str]:
        """The tokenizer's name of each of fairseq's special symbols.

        A language model's tokenizer has ``eos_token`` in place of [CLS] and [SEP].  If two roles
        have the same symbol, as ``eos_token`` and ``bos_token`` can, only the first role counts.
        """
        get = self.settings.get
        if not get("eos_token") or get("cls_token") or get("sep_token"):
            as_here = self.kind == _ROBERTA  # fairseq's names
            return {
                ours: self._content(role, ours if as_here else usual) for ours, role, usual in ROLES
            }
        others = self._others()
        found: Dict[str, str] = {}
        for ours, role in _CAUSAL_ROLES.items():
            name = self._content(role, "")
            if name and name not in found.values():
                found[ours] = name
            elif ours in others:
                found[ours] = ours
        return found

    def _others(self) -> List[str]:
        """Special symbols without a role; transformers 5 writes them under another key."""
        found: List[Any] = []
        for entry in ("additional_special_tokens", "extra_special_tokens"):
            tokens = self.settings.get(entry) or ()
            if not isinstance(tokens, (dict, list, tuple)):
                where = self.path("tokenizer_config.json")
                raise UsageError(f"{where}: {entry} is {tokens!r}; it must be a list of symbols")
            found += tokens.values() if isinstance(tokens, dict) else tokens
        return [str(each.get("content") if isinstance(each, dict) else each) for each in found]

    def _content(self, role: str, usual: str) -> str:
        token: Any = self.settings.get(role) or usual
        content = token.get("content") if isinstance(token, dict) else token
        if not isinstance(content, str):
            raise UsageError(
                f"{self.path('tokenizer_config.json')}: {role} is {token!r}; it must be a symbol "
                "or an object with its content"
            )
        return content


def find_files(folder: str) -> Files:
    """The files of the tokenizer in *folder*, or a UsageError if there is no such folder."""
    if not os.path.isdir(folder):
        raise UsageError(f"{folder}: there is no such folder; give one with a tokenizer's files")
    settings = read_json(os.path.join(folder, "tokenizer_config.json"))
    config = read_json(os.path.join(folder, "config.json"))
    kind = settings.get("tokenizer_class") or config.get("tokenizer_class")
    kind = str(kind or _BY_MODEL.get(str(config.get("model_type")), ""))
    return Files(folder, settings, kind[: -len("Fast")] if kind.endswith("Fast") else kind)


def read_json(path: str) -> Dict[str, Any]:
    """The JSON object in a file, or an empty object if there is no file."""
    return read_json_object(path, f"{path}:") if os.path.isfile(path) else {}


def read_symbols(files: Files, elsewhere: Optional[str] = None) -> Tuple[List[str], str]:
    """The symbols of a tokenizer, in the order of their numbers, and their file.

    Args:
        elsewhere: a vocab.txt that is not in the folder.

    Raises:
        UsageError: there is no file with symbols, or their numbers have gaps.
    """
    source = elsewhere or files.path("vocab.txt")
    if elsewhere or os.path.isfile(source):
        return list(read_lines(source)), source
    source = files.path("tokenizer.json")
    if not os.path.isfile(source):
        raise UsageError(
            f"{files.folder}: has neither vocab.txt nor tokenizer.json; save_pretrained of a "
            "tokenizer of transformers writes one (or import with --vocab FILE, a vocab.txt)"
        )
    return [spelled(symbol) for symbol in in_order(numbers_in(source), source)], source


def numbers_in(path: str) -> Dict[str, Any]:
    """The number of each symbol in a tokenizer.json, or a UsageError if it has no vocabulary."""
    content = read_json(path)
    try:
        numbers = content["model"]["vocab"]
        if isinstance(numbers, list):  # SentencePiece: pieces with their scores
            numbers = {piece: number for number, (piece, _) in enumerate(numbers)}
        added = content.get("added_tokens", ())
        return {**numbers, **{str(token["content"]): token["id"] for token in added}}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: has no vocabulary; give a folder with a vocab.txt") from error


def in_order(numbers: Dict[str, Any], source: str) -> List[str]:
    """The symbols in the order of their numbers, or a UsageError if the numbers have gaps."""
    symbols = {number: symbol for symbol, number in numbers.items() if isinstance(number, int)}
    if sorted(symbols) != list(range(len(numbers))):
        raise UsageError(
            f"{source}: its {len(numbers)} symbols are not numbered from 0 to {len(numbers) - 1}; "
            "give a folder with a vocab.txt"
        )
    return [symbols[number] for number in range(len(numbers))]


def spelled(symbol: str) -> str:
    """The name of a symbol in dict.txt; there, a symbol of spaces is written with ``␣``.

    >>> spelled("  "), spelled("a")
    ('␣␣', 'a')
    """
    return _SPACE * len(symbol) if symbol and not symbol.strip(" ") else symbol


def ordinary_symbols(symbols: Sequence[str], special: Dict[str, str], source: str) -> List[int]:
    """The numbers of the ordinary symbols, which dict.txt lists.

    Args:
        special: the tokenizer's name of each of fairseq's special symbols.

    Raises:
        UsageError: a special symbol is missing, a symbol occurs twice, or fairseq could not read a
            symbol back.
    """
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    if len(numbers) < len(symbols):
        twice = next(s for number, s in enumerate(symbols) if numbers[s] != number)
        raise UsageError(
            f"{source}: {twice!r} occurs twice (numbers {symbols.index(twice)} and "
            f"{numbers[twice]}), and fairseq refuses such a dictionary; rename one of them"
        )
    for ours, theirs in special.items():
        if theirs not in numbers:
            raise UsageError(f"{source}: has no {theirs!r}, which corresponds to fairseq's {ours}")
    used = set(special.values())
    ordinary = [number for number, symbol in enumerate(symbols) if symbol not in used]
    for number in ordinary:
        symbol = symbols[number]
        if symbol in RESERVED:
            raise UsageError(
                f"{source}: the ordinary symbol {symbol!r} (number {number}) is one that fairseq "
                "reserves; rename it"
            )
        if symbol.split() != [symbol]:
            raise UsageError(
                f"{source}: the symbol {symbol!r} (number {number}) is empty or contains white "
                "space, at which fairseq splits text; rename it"
            )
    return ordinary


def dictionary(folder: str) -> str:
    """The text of dict.txt for a folder's tokenizer, as an import of the model would write it."""
    files = find_files(folder)
    symbols, source = read_symbols(files)
    ordinary = ordinary_symbols(symbols, files.special(), source)
    return "".join(f"{symbols[number]} 1\n" for number in ordinary)


def as_text(content: Dict[str, Any], names: Iterable[str]) -> Dict[str, Any]:
    """A tokenizer.json that treats *names* in a text as ordinary text; its added tokens stay.

    An added step splits each name before its last character or number (``</s`` and ``>``).  It can
    change other text only if the pieces of earlier steps have both letters and signs.
    """
    if "merges" in content["model"]:
        return dict(content)
    parts = [found.groups() for found in map(_LAST.fullmatch, sorted(set(names))) if found]
    places = [f"(?<={re.escape(start)})(?={re.escape(end)})" for start, end in parts]
    pattern = {"Regex": "|".join(places)}
    cut = {"type": "Split", "pattern": pattern, "behavior": "Removed", "invert": False}
    before = content.get("pre_tokenizer")
    steps = [*([before] if before else []), cut]
    return {**content, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


class Tokenizer(NamedTuple):
    """A tokenizer."""

    split: Callable[[str], List[str]]  # splits a line of text into symbols, under fairseq's names
    join: Callable[[List[str]], str]  # joins symbols into text
    mask: str  # how the symbol ``<mask>`` is written in text


def load(folder: str) -> Tokenizer:
    """The tokenizer in a folder; raises a UsageError that says what the folder lacks."""
    files = find_files(folder)
    names = files.special()
    # tokenizer.json cannot describe jieba, and has a different rule in its place
    if files.kind != JIEBA and os.path.isfile(files.path("tokenizer.json")):
        tokenizer = _from_json(files)
    elif files.kind in (JIEBA, BERT, ""):
        tokenizer = word_pieces(files)
    else:
        raise UsageError(
            f"{folder}: has a {files.kind}, but no tokenizer.json; save_pretrained of this "
            "tokenizer in transformers writes that file"
        )
    names.update({spelled(s): s for s in tokenizer.get_vocab() if spelled(s) != s})
    ours = {theirs: name for name, theirs in names.items()}
    if tokenizer.decoder is None:
        tokenizer.decoder = import_extra("tokenizers", _FOR).decoders.WordPiece(cleanup=False)
    encode = tokenizer.encode
    return Tokenizer(
        lambda line: [ours.get(t, t) for t in encode(line, add_special_tokens=False).tokens],
        lambda symbols: tokenizer.decoder.decode([names.get(s, s) for s in symbols]),
        names.get("<mask>", "<mask>"),
    )


def special_names(files: Files, content: Dict[str, Any]) -> List[str]:
    """The names of all special symbols of a tokenizer.json and of fairseq."""
    marked = [t["content"] for t in content.get("added_tokens", ()) if t.get("special")]
    return [*marked, *files.special().values(), *RESERVED]


def _from_json(files: Files) -> Any:
    tokenizers, path = import_extra("tokenizers", _FOR), files.path("tokenizer.json")
    content = read_json(path)
    try:
        names = special_names(files, content)
        added = [t for t in content.get("added_tokens", ()) if t["content"] not in names]
        whole = {"added_tokens": added, "truncation": None, "padding": None}
        return tokenizers.Tokenizer.from_str(json.dumps(as_text({**content, **whole}, names)))
    except Exception as error:  # the package raises nothing more specific
        raise UsageError(f"{path}: is no tokenizer ({error})") from error


def word_pieces(files: Files) -> Any:
    """BERT's tokenizer, or RoFormer's, which keeps jieba's words whole if they are symbols."""
    tokenizers = import_extra("tokenizers", _FOR)
    symbols, source = read_symbols(files)
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    unknown = files.special().get("<unk>", "[UNK]")
    if unknown not in numbers:
        raise UsageError(f"{source}: has no {unknown!r}, the symbol for unknown words")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbers, unk_token=unknown))
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
        import_extra("rjieba", _FOR)
        roformer = import_extra("transformers.models.roformer.tokenization_utils", _FOR)
        tokenizer.pre_tokenizer = splitters.PreTokenizer.custom(roformer.JiebaPreTokenizer(numbers))
    return tokenizer
