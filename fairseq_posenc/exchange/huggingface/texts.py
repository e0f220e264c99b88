"""How the classes of transformers number text: vocabularies that are read, tokenizers written.

Written symbols have the numbers of dict.txt.
"""

from pathlib import Path
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from torch import Tensor

from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.checkpoints.loader import read_dictionary
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface.tokenizers.splitters import splitter_of
from fairseq_posenc.exchange.huggingface.tokenizers.symbols import CAUSAL_MARKS, write_symbols
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import Vocabulary, dictionary_vocabulary, read_vocabulary
from fairseq_posenc.models.kinds import PAD


class WrittenTexts(NamedTuple):
    """What the tokenizer of a written folder says.

    Args:
        orders: by side, our number of each symbol of the folder, (V,); symbols behind those of our
            dictionary stand for ``<unk>``.
        known: by side, how many of them our dictionary has; they come first.
        entries: the entries of config.json on symbols.
        notes: what the user should know.
    """

    orders: Mapping[str, Tensor]
    known: Mapping[str, int]
    entries: Mapping[str, Any]
    notes: Sequence[str] = ()


class Texts:
    """How a class numbers text; this one reads the symbols of a tokenizer of transformers."""

    #: whether a written tokenizer can split text as the training did
    splits = True

    def read(self, path: str, file: Optional[str], config: Config) -> Vocabulary:
        """The vocabulary of a folder.

        Args:
            path: the folder.
            file: its vocabulary, if that is elsewhere.
            config: its config.json.

        Raises:
            UsageError: it is missing or damaged, or lacks a symbol that the class needs.
        """
        return dictionary_vocabulary(path, file) or read_vocabulary(path, file)

    def notes(self, vocabulary: Vocabulary, config: Config) -> List[str]:
        """What the user should know of an imported vocabulary."""
        return []

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """Write a tokenizer.

        Args:
            checkpoint: the model.
            inputs: what the class reads.
            hides: whether the class can have symbols that it never produces.
            folder: an existing folder.

        Raises:
            UsageError: the subwords cannot be read, or have no place.
        """
        raise NotImplementedError


def write_generation(folder: str, entries: Mapping[str, Any], hidden: Iterable[int] = ()) -> None:
    """Write generation_config.json, by which ``generate`` never writes padding and *hidden*."""
    content = {**entries, "suppress_tokens": [PAD, *hidden]}
    Path(folder, "generation_config.json").write_text(json_text(content), "utf-8")


class CausalTexts(Texts):
    """The text of language models, which begins with ``</s>``."""

    def notes(self, vocabulary: Vocabulary, config: Config) -> List[str]:
        """See :class:`Texts`."""
        notes = []
        if vocabulary.missing:
            notes.append(f"{vocabulary.missing} symbols of fairseq's that it lacks start as zeros")
        return [
            *notes,
            f"fairseq begins a text with {vocabulary.names['</s>']!r}; --add-bos-token begins it "
            f"with {vocabulary.names.get('<s>', '<s>')!r}",
        ]

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """See :class:`Texts`."""
        longest = checkpoint.settings["max_target_positions"]
        dictionary = read_dictionary(checkpoint.dictionary, adds_mask=False)
        splitter = splitter_of(checkpoint.subwords, "decoder", dictionary.symbols, hides)
        order = write_symbols(folder, dictionary, longest, CAUSAL_MARKS, splitter)
        if splitter.sentencepiece is not None:
            Path(folder, "tokenizer.model").write_bytes(splitter.sentencepiece)
        known, notes = len(dictionary), list(splitter.notes)
        if splitter.hidden:
            notes.append(
                f"{len(splitter.hidden)} symbols of the subwords that dict.txt lacks have the "
                "vectors of <unk>, and generation_config.json keeps them from being written"
            )
        end = dictionary.eos()
        entries = {"pad_token_id": PAD, "bos_token_id": end, "eos_token_id": end}
        # a pipeline would go on behind the longest text
        search = {**entries, "max_length": longest}
        write_generation(folder, search, range(known, len(order)))
        return WrittenTexts({"decoder": order}, {"decoder": known}, entries, notes)
