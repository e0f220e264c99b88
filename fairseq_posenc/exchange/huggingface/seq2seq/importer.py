"""Reading translation models of transformers: the folder of a class becomes a checkpoint."""

import os
from functools import partial
from typing import Dict, List, Optional, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_object
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import Imported, Importer
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.agreement import agreed, has_own_output
from fairseq_posenc.exchange.huggingface.seq2seq.classes import Seq2SeqClass
from fairseq_posenc.exchange.huggingface.seq2seq.folder import TARGET
from fairseq_posenc.exchange.huggingface.seq2seq.read import read_parameters
from fairseq_posenc.exchange.reader import (
    LEADING,
    MASK,
    Reader,
    Vocabulary,
    dictionary_vocabulary,
    renumber,
)
from fairseq_posenc.exchange.verify_translation import NOT_SAVED, reference
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import TRANSLATION
from fairseq_posenc.serving.huggingface.tokenizer import find_files, in_order, read_symbols

#: Signs of a second vocabulary.
_OF_TARGET = (TARGET, "target_vocab.json")
_END = "</s>"


class Seq2SeqImporter(Importer):
    """Reads a folder of a class of transformers.

    Args:
        source: the class.
    """

    def __init__(self, source: Seq2SeqClass) -> None:
        self.source = source

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        source = self.source
        folder = hf.open_folder(path, source.model_type, source.aliases)
        config = folder.config
        config.architecture([source.architecture])
        settings = source.settings(config)
        _refuse_two_vocabularies(path, config)
        vocabulary = dictionary_vocabulary(path, vocab)
        if vocabulary is None:
            symbols, file = _symbols(path, vocab)
            vocabulary = renumber(symbols, _special_names(symbols, config), file)
        _check_special(config, vocabulary)
        known = len(vocabulary.order) - vocabulary.missing
        names = [source.shared, *source.apart.values(), source.output, source.bias or ""]
        flat = {name: x.flatten() for name, x in folder.parameters.items() if name == source.bias}
        folder = folder._replace(parameters={**folder.parameters, **flat})
        folder, notes = agreed(folder, vocabulary, names, source.sizes["encoder_embed_dim"])
        pairs = source.pairs(config, folder.parameters)
        own = has_own_output(folder, source.tied(config), *pairs)
        reader = Reader(folder.weights, folder.parameters, vocabulary)
        usual = int(vocabulary.order[LEADING.index(source.start)])
        start = config.get("decoder_start_token_id", usual)
        shares = source.shares(config)
        notes += read_parameters(reader, source, settings, not own, start, shares)
        reader.drop(*(f"model.{side}.embed_positions.weights" for side in SIDES))
        reader.finish(f"config.json ({source.architecture})")
        if int(vocabulary.order[2]) != start:
            notes.append(
                "its translations do not begin with </s>: here they do, and </s> has the vector of "
                "their first token in the decoder, which has embeddings of its own for that"
            )
        order = dict.fromkeys(SIDES, vocabulary.order)
        name = source.architecture
        load = partial(hf.load_model, path, name, NOT_SAVED)
        foreign = reference(load, f"{name} of transformers", order, known, start)
        return Imported(
            settings,
            reader.parameters,
            reader.origin,
            vocabulary,
            foreign,
            notes=[*notes, "prepare text with --joined-dictionary and --srcdict dict.txt"],
            kind=TRANSLATION,
        )


def _refuse_two_vocabularies(path: str, config: Config) -> None:
    size = config.size("vocab_size", 1)
    found = [name for name in _OF_TARGET if os.path.exists(os.path.join(path, name))]
    if found or config.size("decoder_vocab_size", size) != size:
        reason = f"has {found[0]}" if found else "its decoder_vocab_size is not its vocab_size"
        raise UsageError(f"{path}: {reason}; a model with two vocabularies cannot be imported")


def _check_special(config: Config, vocabulary: Vocabulary) -> None:
    """Refuse other numbers of special symbols than those of a dictionary."""
    for ours, entry in ((_END, "eos_token_id"), ("<pad>", "pad_token_id")):
        number = int(vocabulary.order[LEADING.index(ours)])
        given = config.get(entry, number)
        if given != number:
            raise UsageError(
                f"{config.path}: {entry} is {given}, but {vocabulary.names[ours]} is number "
                f"{number} in {vocabulary.source}"
            )


def _symbols(path: str, file: Optional[str]) -> Tuple[List[str], str]:
    """The symbols of a tokenizer by number, and their file."""
    listed = os.path.join(path, "vocab.json")
    others = (os.path.join(path, name) for name in ("vocab.txt", "tokenizer.json"))
    if file is not None or not os.path.isfile(listed) or any(map(os.path.isfile, others)):
        return read_symbols(find_files(path), file)
    return in_order(read_json_object(listed, f"{listed}:"), listed), listed


def _special_names(symbols: List[str], config: Config) -> Dict[str, str]:
    """The names of fairseq's special symbols, by the numbers in config.json."""
    found: Dict[str, str] = {}
    for ours, entry in ((_END, "eos"), ("<pad>", "pad"), ("<s>", "bos")):
        number = config.get(f"{entry}_token_id", None)
        if isinstance(number, int) and 0 <= number < len(symbols):
            if symbols[number] not in found.values():
                found[ours] = symbols[number]
    for ours in ("<s>", "<unk>", MASK):
        if ours in symbols and ours not in found.values():
            found.setdefault(ours, ours)
    for ours, entry in ((_END, "eos"), ("<pad>", "pad")):
        if ours not in found:
            raise UsageError(
                f"{config.path}: {entry}_token_id is {config.get(f'{entry}_token_id', None)}; it "
                "must be the number of a symbol that no other role has"
            )
    return found
