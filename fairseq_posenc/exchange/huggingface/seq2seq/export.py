"""Translation models as native classes of transformers, without code of this plug-in: both ways.

Written symbols keep the numbers of dict.txt, translations begin and end with ``</s>``, and the
settings of the search are those of ``fairseq-generate``.
"""

from functools import partial
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints import loader
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.checkpoints.settings import encodings_by_side
from fairseq_posenc.exchange.formats import (
    Expressible,
    Flag,
    Wanted,
    refuse_inexpressible,
    register_format,
)
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.seq2seq.classes import Seq2SeqClass
from fairseq_posenc.exchange.huggingface.seq2seq.folder import (
    FLAGS,
    dictionaries_of,
    special,
    texts_of,
    write_texts,
)
from fairseq_posenc.exchange.huggingface.seq2seq.importer import Seq2SeqImporter
from fairseq_posenc.exchange.huggingface.seq2seq.t5 import CLASSES
from fairseq_posenc.exchange.huggingface.seq2seq.write import written
from fairseq_posenc.exchange.huggingface.tokenizers.splitters import Subwords
from fairseq_posenc.exchange.prepared import prepared
from fairseq_posenc.exchange.source import load_source, source_of, without_effect
from fairseq_posenc.exchange.transfer import FolderExporter
from fairseq_posenc.exchange.verify_translation import NOT_SAVED, compare_translation, reference
from fairseq_posenc.exchange.written import Stack, Written
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import TRANSLATION, Settings
from fairseq_posenc.serving.model_folder import Search

#: Settings of any value: they are read, follow from the parameters, or matter in training alone.
READ = (
    *(f"{side}_{n}" for side in SIDES for n in ("layers", "embed_dim", "ffn_embed_dim")),
    *(f"{side}_{n}" for side in SIDES for n in ("attention_heads", "learned_pos")),
    *("decoder_input_dim", "decoder_output_dim", "share_decoder_input_output_embed"),
    *("share_all_embeddings", "merge_src_tgt_embed", "no_token_positional_embeddings"),
    *("no_scale_embedding", "max_source_positions", "max_target_positions"),
)


class TranslationExporter(FolderExporter):
    """Writes a folder with a translation model for transformers."""

    flags: Tuple[Flag, ...] = FLAGS
    #: the target of the export, for messages
    name: str

    def refuse(self, path: str, settings: Settings) -> None:
        """Refuse settings that cannot be expressed, before the model is loaded."""
        raise NotImplementedError

    def write(
        self,
        loaded: Loaded,
        settings: Settings,
        folder: str,
        subwords: Optional[Subwords],
        search: Search,
    ) -> List[str]:
        """Write a loaded model, and return notes.

        Args:
            loaded: the model.
            settings: its settings, which :meth:`refuse` accepts.
            folder: an existing empty folder.
            subwords: how its text was prepared, if that is known.
            search: beam size and length penalty.

        Raises:
            UsageError: the parameters cannot be expressed.
        """
        raise NotImplementedError

    def load(self, folder: str) -> nn.Module:
        """Load a folder that was written, in evaluation mode."""
        raise NotImplementedError

    def whole(self, wanted: Wanted, folder: str) -> Written:
        """See :class:`~fairseq_posenc.exchange.transfer.FolderExporter`."""
        wanted, subwords, search = prepared(wanted)
        source = source_of(wanted, self.name, [TRANSLATION])
        settings = with_encodings(source.settings)
        self.refuse(wanted.path, settings)
        loaded = load_source(source, self.name)
        notes = self.write(loaded, settings, folder, subwords, search)
        order = {name: torch.arange(len(each)) for name, each in dictionaries_of(loaded).items()}
        known = max(map(len, order.values()))
        foreign = reference(partial(self.load, folder), self.name, order, known)

        def load_again(path: str, changes: Mapping[str, Any]) -> nn.Module:
            if path == loaded.path:
                return loaded.model
            return loader.load(path, overrides=changes, task=loaded.task).model

        return Written(
            wanted,
            load_again,
            lambda model: compare_translation(model, foreign, wanted.path),
            self.name,
            [*notes, *source.notes],
        )


def with_encodings(settings: Settings) -> Settings:
    """Settings with the encoding of both sides in ``position_encoding`` where it is the same."""
    found = encodings_by_side(settings)
    same = found["encoder"] == found["decoder"]
    own = {f"{side}_position_encoding": None if same else found[side] for side in SIDES}
    return {**settings, "position_encoding": found["encoder"], **own}


def _check_tables(loaded: Loaded, target: Seq2SeqClass, one: bool) -> None:
    """Refuse two embeddings where the class has one."""
    tables = [getattr(loaded.model, side).embed_tokens.weight for side in SIDES]
    if not target.two_embeddings and not (one and torch.equal(*tables)):
        raise UsageError(
            f"{loaded.path}: was trained without --share-all-embeddings, but {target.architecture} "
            "of transformers has one embedding for source and target; hf-remote-code holds two; "
            "nothing was written"
        )


class Seq2SeqExporter(TranslationExporter):
    """Writes a folder that a class of transformers loads.

    Args:
        target: the class.
    """

    def __init__(self, target: Seq2SeqClass) -> None:
        self.target = target
        self.name = f"{target.architecture} of transformers"

    def stacks(self, settings: Settings) -> Sequence[Stack]:
        """See :class:`~fairseq_posenc.exchange.transfer.FolderExporter`."""
        return [
            Stack(
                self.target.names(side, settings),
                f"{side}.",
                settings[f"{side}_layers"],
                settings[f"{side}_attention_heads"],
            )
            for side in SIDES
        ]

    def refuse(self, path: str, settings: Settings) -> None:
        """See :class:`TranslationExporter`."""
        target = self.target
        family, known = TRANSLATION.family, {*READ, *target.read}
        values = {
            **target.values,
            "position_encoding": target.encodings,
            **{f"{side}_position_encoding": (None, *target.encodings) for side in SIDES},
        }
        expressible = Expressible(self.name, known, values)
        known.update(without_effect(family, settings, expressible) - set(values))
        refuse_inexpressible(path, family, settings, expressible)
        target.check(settings, path)

    def load(self, folder: str) -> nn.Module:
        """See :class:`TranslationExporter`."""
        return hf.load_model(folder, self.target.architecture, NOT_SAVED)

    def write(
        self,
        loaded: Loaded,
        settings: Settings,
        folder: str,
        subwords: Optional[Subwords],
        search: Search,
    ) -> List[str]:
        """See :class:`TranslationExporter`."""
        target = self.target
        texts = texts_of(loaded, subwords, target.bias is not None)
        _check_tables(loaded, target, texts.one)
        state, notes = written(loaded, target, settings, texts.hidden)
        entries = {
            "model_type": target.model_type,
            "architectures": [target.architecture],
            "is_encoder_decoder": True,
            **target.entries(settings, loaded.path),
            "tie_word_embeddings": target.output not in state,
            "vocab_size": texts.sizes["encoder"],
            **special(texts.symbols["decoder"]),
            "torch_dtype": "float32",
        }
        if target.two_embeddings:
            entries["share_encoder_decoder_embeddings"] = target.shared in state
            entries["decoder_vocab_size"] = texts.sizes["decoder"]
        hf.write_weights(folder, entries, state)
        return [*notes, *write_texts(folder, loaded, texts, settings, search)]


for _name, _class in CLASSES.items():
    register_format(
        _name,
        summary=f"a folder of transformers' {_class.architecture}",
        importer=Seq2SeqImporter(_class),
        exporter=Seq2SeqExporter(_class),
    )
