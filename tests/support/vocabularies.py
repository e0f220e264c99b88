"""The files of a tokenizer for the symbols of small foreign models."""

import json

import pytest
from support.foreign_models import OURS


def carried(folder):
    """The flags of an export that carries the tokenizer of a folder of transformers."""
    return ["--subwords", "transformers", "--subword-file", folder]


def save_tokenizer(folder, tokenizer):
    """Save a tokenizer of tokenizers, whose special symbols have fairseq's names."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {f"{name[1:-1].lower()}_token": ours for name, ours in OURS.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))


def learn_pieces(prefix, lines, **flags):
    """The model of SentencePiece that is learned from lines of text: PREFIX.model."""
    module = pytest.importorskip("sentencepiece", reason="learns the subwords")
    text = prefix.with_suffix(".train")
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    module.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(prefix), minloglevel=2, **flags
    )
    return prefix.with_suffix(".model")
