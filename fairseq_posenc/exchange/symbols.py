"""A ``tokenizer.json`` for text that is split into the symbols of fairseq's dictionary already."""

from pathlib import Path
from typing import List

from fairseq_posenc.exchange.huggingface import as_json
from fairseq_posenc.exchange.reader import LEADING, MASK


def write_symbols(path: str, symbols: List[str], longest: int) -> None:
    """Write a tokenizer of text that is split into symbols, as a language model of fairseq's reads.

    Every text begins with ``</s>``.

    Args:
        path: an existing folder.
        symbols: the symbols of fairseq's dictionary, in order.
        longest: the longest text, in tokens.
    """
    special = {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    number = {symbol: index for index, symbol in enumerate(symbols)}
    added = [
        {
            "id": number[symbol],
            "content": symbol,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for symbol in LEADING
    ]
    start = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [start, text],
            "pair": [start, text, second],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [number["</s>"]], "tokens": ["</s>"]}},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": number, "unk_token": "<unk>"},
    }
    Path(path, "tokenizer.json").write_text(as_json(content), "utf-8")
    settings = {
        **special,
        "additional_special_tokens": [name for name in ("<s>", MASK) if name in number],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
    }
    Path(path, "tokenizer_config.json").write_text(as_json(settings), "utf-8")
