"""The vocab.txt of BERT's kind, whose words and pieces transformers splits itself."""

from pathlib import Path
from typing import Optional, Sequence

from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface.texts import Texts, WrittenTexts
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import (
    FIRST,
    SPECIAL_TOKENS,
    Vocabulary,
    read_vocabulary,
    vocabulary_order,
)


class WordPieceTexts(Texts):
    """The text of RoFormer: special symbols come first in vocab.txt."""

    splits = False

    def read(self, path: str, file: Optional[str], config: Config) -> Vocabulary:
        """See :class:`~fairseq_posenc.exchange.huggingface.texts.Texts`."""
        return read_vocabulary(path, file)

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """See :class:`~fairseq_posenc.exchange.huggingface.texts.Texts`."""
        symbols, order = vocabulary_order(checkpoint.symbols, checkpoint.dictionary)
        settings = {
            **SPECIAL_TOKENS,
            "tokenizer_class": "RoFormerTokenizer",
            "split_special_tokens": True,  # the name of a special symbol in a text is text
            "model_max_length": checkpoint.settings["max_positions"],
            "do_lower_case": all(symbol == symbol.lower() for symbol in symbols[len(FIRST) :]),
        }
        Path(folder, "tokenizer_config.json").write_text(json_text(settings), "utf-8")
        text = "".join(symbol + "\n" for symbol in symbols)
        Path(folder, "vocab.txt").write_text(text, "utf-8")
        note = "vocab.txt lists the dictionary; text must be tokenised as it was for training"
        entries = {"pad_token_id": symbols.index("[PAD]")}
        return WrittenTexts({"encoder": order}, {"encoder": len(symbols)}, entries, (note,))
