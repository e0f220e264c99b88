"""Text to symbols as the tokenizer of an imported model makes them.

A folder of the ``transformers`` library describes its tokenizer by a ``tokenizer.json`` or by a
``vocab.txt`` with a ``tokenizer_config.json``.  The tokens are those of that library with
``split_special_tokens``: the name of a special one in a text is text.  Only the special ones get
fairseq's names.  Neither PyTorch nor fairseq is imported.
"""

import json
import os
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_object, read_lines
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.serving.huggingface.control_symbols import as_text

#: fairseq's symbol, the role in tokenizer_config.json, and its usual name.
ROLES = (
    ("<s>", "cls_token", "[CLS]"),
    ("<pad>", "pad_token", "[PAD]"),
    ("</s>", "sep_token", "[SEP]"),
    ("<unk>", "unk_token", "[UNK]"),
    ("<mask>", "mask_token", "[MASK]"),
)
#: The roles in a tokenizer of a language model, which may lack all but the end of a text.
CAUSAL_ROLES = (
    ("</s>", "eos_token"),
    ("<pad>", "pad_token"),
    ("<s>", "bos_token"),
    ("<unk>", "unk_token"),
    ("<mask>", "mask_token"),
)
#: Symbols that fairseq keeps for itself.
RESERVED = frozenset(ours for ours, _, _ in ROLES)
_JIEBA, _BERT, _ROBERTA = "RoFormerTokenizer", "BertTokenizer", "RobertaTokenizer"
#: The library's own rule: the tokenizer by ``model_type`` in config.json.
_BY_MODEL = {"roformer": _JIEBA, "roberta": _ROBERTA}
_SPACE = "\u2423"
#: Names of the files that describe a tokenizer.
FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "config.json")


class Tokenizer(NamedTuple):
    """A tokenizer."""

    split: Callable[[str], List[str]]  # the symbols of a line of text, by fairseq's names
    join: Callable[[List[str]], str]  # the text of symbols
    mask: str  # the spelling in text of the symbol ``<mask>``


class Files(NamedTuple):
    """The files of a tokenizer."""

    folder: str  # where they are
    settings: Dict[str, Any]  # the settings of tokenizer_config.json
    kind: str  # name of its class, without ``Fast``; empty if no file says it

    def path(self, name: str) -> str:
        """The path of a file in the folder."""
        return os.path.join(self.folder, name)

    def special(self) -> Dict[str, str]:
        """The tokenizer's names of fairseq's special symbols.

        A language model's tokenizer has an end of texts in place of [CLS] and [SEP].  What it has
        under one name, such as the end and the beginning, is one symbol.
        """
        get = self.settings.get
        if not get("eos_token") or get("cls_token") or get("sep_token"):
            as_here = self.kind == _ROBERTA  # fairseq's names
            return {
                ours: self._content(role, ours if as_here else usual) for ours, role, usual in ROLES
            }
        others = self._others()
        found: Dict[str, str] = {}
        for ours, role in CAUSAL_ROLES:
            name = self._content(role, "") if get(role) else ""
            if name and name not in found.values():
                found[ours] = name
            elif ours in others:
                found[ours] = ours
        return found

    def _others(self) -> List[str]:
        """Special symbols without a role; transformers 5 writes them under another name."""
        found: List[Any] = []
        for entry in ("additional_special_tokens", "extra_special_tokens"):
            tokens = self.settings.get(entry) or ()
            if not isinstance(tokens, (dict, list, tuple)):
                where = self.path("tokenizer_config.json")
                raise UsageError(f"{where}: {entry} is {tokens!r}; it must be a list of symbols")
            found += tokens.values() if isinstance(tokens, dict) else tokens
        return [str(each.get("content") if isinstance(each, dict) else each) for each in found]

    def _content(self, role: str, usual: str) -> str:
        token: Union[None, str, Mapping[str, str]] = self.settings.get(role) or usual
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
    settings = _json(os.path.join(folder, "tokenizer_config.json"))
    config = _json(os.path.join(folder, "config.json"))
    kind = settings.get("tokenizer_class") or config.get("tokenizer_class")
    kind = str(kind or _BY_MODEL.get(str(config.get("model_type")), ""))
    return Files(folder, settings, kind[: -len("Fast")] if kind.endswith("Fast") else kind)


def _json(path: str) -> Dict[str, Any]:
    """The object in a file, empty if there is no file."""
    return read_json_object(path, f"{path}:") if os.path.isfile(path) else {}


def read_symbols(files: Files, elsewhere: Optional[str] = None) -> Tuple[List[str], str]:
    """The symbols of a tokenizer by number, and the file they come from.

    Args:
        elsewhere: a vocab.txt that is not in the folder.

    Raises:
        UsageError: there is no such file, or its numbers have gaps.
    """
    source = elsewhere or files.path("vocab.txt")
    if elsewhere or os.path.isfile(source):
        return list(read_lines(source)), source
    source = files.path("tokenizer.json")
    if not os.path.isfile(source):
        raise UsageError(
            f"{files.folder}: has neither vocab.txt nor tokenizer.json; save_pretrained of a "
            "tokenizer of transformers writes one (to import with a vocab.txt elsewhere: --vocab)"
        )
    return [spelled(symbol) for symbol in in_order(numbers_in(source), source)], source


def numbers_in(path: str) -> Dict[str, Any]:
    """The number of each symbol in a tokenizer.json, or a UsageError if it has no vocabulary."""
    content = _json(path)
    try:
        numbers = content["model"]["vocab"]
        if isinstance(numbers, list):  # SentencePiece: pieces with their scores
            numbers = {piece: number for number, (piece, _) in enumerate(numbers)}
        added = content.get("added_tokens", ())
        return {**numbers, **{str(token["content"]): token["id"] for token in added}}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: has no vocabulary; give a folder with a vocab.txt") from error


def in_order(numbers: Mapping[str, Any], source: str) -> List[str]:
    """The symbols of a vocabulary by number, or a UsageError if the numbers have gaps."""
    symbols = {number: symbol for symbol, number in numbers.items() if isinstance(number, int)}
    if sorted(symbols) != list(range(len(numbers))):
        raise UsageError(
            f"{source}: its {len(numbers)} symbols are not numbered from 0 to {len(numbers) - 1}; "
            "give a folder with a vocab.txt"
        )
    return [symbols[number] for number in range(len(numbers))]


def spelled(symbol: str) -> str:
    """The name in dict.txt, which cannot hold spaces, of a symbol that is a run of them.

    >>> spelled("  "), spelled("a")
    ('␣␣', 'a')
    """
    return _SPACE * len(symbol) if symbol and not symbol.strip(" ") else symbol


def load(folder: str) -> Tokenizer:
    """The tokenizer whose files are in a folder, or a UsageError that says what it lacks."""
    files = find_files(folder)
    names = files.special()
    special = {theirs: ours for ours, theirs in names.items()}
    # tokenizer.json cannot hold the words of jieba, and holds another rule in their place
    if files.kind != _JIEBA and os.path.isfile(files.path("tokenizer.json")):
        tokenizer = _from_json(files)
    elif files.kind in (_JIEBA, _BERT, ""):
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
    if files.kind == _JIEBA:
        return None
    if os.path.isfile(files.path("tokenizer.json")):
        return _json(files.path("tokenizer.json"))
    if files.kind not in (_BERT, ""):
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
    content = _json(path)
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
    get, words = files.settings.get, files.kind == _JIEBA
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
