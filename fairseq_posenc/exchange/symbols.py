"""A ``tokenizer.json`` for text that is split into the symbols of fairseq's dictionary already."""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from fairseq_posenc.exchange.huggingface import as_json
from fairseq_posenc.exchange.reader import LEADING, MASK


class Marks(NamedTuple):
    """What a tokenizer puts around texts.

    Args:
        roles: the special symbols by their names in tokenizer_config.json.
        single: a text between its symbols; ``$A`` is the text.
        pair: two texts, ``$A`` and ``$B``, between their symbols; ``:1`` behind a part says that it
            is of the second segment.
        inputs: what the model reads.
    """

    roles: Dict[str, str]
    single: str
    pair: str
    inputs: List[str]


#: Every text of a language model begins with ``</s>``.
CAUSAL_MARKS = Marks(
    {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
    "</s> $A",
    "</s> $A $B",
    ["input_ids", "attention_mask"],
)
#: The roles of symbols in a model whose texts are between ``<s>`` and ``</s>``.
ENCODER_ROLES = {
    **{"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"},
    **{"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": MASK},
}


def write_symbols(path: str, symbols: List[str], longest: int, marks: Marks) -> None:
    """Write a tokenizer of text that is split into symbols.

    Args:
        path: an existing folder.
        symbols: the symbols of fairseq's dictionary, in order.
        longest: the longest text, in tokens.
        marks: what is put around a text.
    """
    number = {symbol: index for index, symbol in enumerate(symbols)}
    used = [*LEADING, MASK] if MASK in marks.roles.values() else LEADING
    added = [
        {
            "id": number[symbol],
            "content": symbol,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for symbol in used
    ]
    around = {part.partition(":")[0] for part in (marks.single + " " + marks.pair).split()}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": _template(marks.single),
            "pair": _template(marks.pair),
            "special_tokens": {
                name: {"id": name, "ids": [number[name]], "tokens": [name]}
                for name in sorted(around & set(used))
            },
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": number, "unk_token": "<unk>"},
    }
    Path(path, "tokenizer.json").write_text(as_json(content), "utf-8")
    others = [name for name in ("<s>", MASK) if name not in marks.roles.values()]
    settings = {
        **marks.roles,
        "additional_special_tokens": [name for name in others if name in number],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": marks.inputs,
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
    }
    Path(path, "tokenizer_config.json").write_text(as_json(settings), "utf-8")


def _template(text: str) -> List[Dict[str, Any]]:
    """A template of tokenizer.json, given one such as ``<s> $A </s>``."""
    parts = []
    for part in text.split():
        name, _, segment = part.partition(":")
        kind, name = ("Sequence", name[1:]) if name[0] == "$" else ("SpecialToken", name)
        parts.append({kind: {"id": name, "type_id": int(segment or 0)}})
    return parts
