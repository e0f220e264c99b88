"""fairseq's own ``from_pretrained`` reads model folders.

``MODEL_REGISTRY["posenc_lm"].from_pretrained(FOLDER)`` reads checkpoint, dictionaries, languages
and text preparation from a model folder, without downloads.  fairseq's hub interfaces apply the
preparation as a ``bpe``.  Every training run loads this file, so slow imports are in functions.
"""

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Optional

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

from fairseq_posenc.basics.errors import UsageError

#: The value of fairseq's ``--bpe`` for the text preparation of a model folder.
BPE = "model_folder"


@dataclass
class ModelFolderBPEConfig(FairseqDataclass):
    """The setting of :class:`ModelFolderBPE`."""

    model_folder: str = field(default="", metadata={"help": "a folder of `fairseq-posenc pack`"})


@register_bpe(BPE, dataclass=ModelFolderBPEConfig)
class ModelFolderBPE:
    """The text preparation of a model folder: words and subwords.

    Args:
        cfg: has the path of the folder.

    Attributes:
        preparation: turns raw text into symbols and back.
    """

    def __init__(self, cfg: ModelFolderBPEConfig) -> None:
        from fairseq_posenc.serving.model_folder import read_model_folder
        from fairseq_posenc.serving.preparation import Preparation

        folder = read_model_folder(cfg.model_folder, f"--bpe {BPE}")
        self.preparation = Preparation(folder.text, folder.path)

    def encode(self, text: str) -> str:
        """The symbols of a text of the source language, separated by spaces."""
        symbols = self.preparation.source(text)  # symbols of dictionaries have no white space
        return " ".join(symbol if symbol.split() == [symbol] else "<unk>" for symbol in symbols)

    def decode(self, symbols: str) -> str:
        """The text of symbols of the target language."""
        return self.preparation.restore(symbols.split())


def read_model_folders(from_pretrained: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap fairseq's ``from_pretrained``, so that it also reads model folders."""

    def wrapper(
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        archive_map: Optional[Dict[str, Any]] = None,
        **settings: Any,
    ) -> Any:
        from fairseq_posenc.serving.hub import opened
        from fairseq_posenc.serving.model_folder import SETTINGS, read_model_folder

        path = str(model_name_or_path)
        if os.path.isfile(os.path.join(path, SETTINGS)):
            folder = read_model_folder(path, "from_pretrained")
            return opened(folder, from_pretrained, checkpoint_file, **settings)
        if settings.get("bpe") == "":  # the default of masked language models
            raise UsageError(
                f"from_pretrained {path}: is no model folder, so how its text was split is "
                "unknown; give the folder that `fairseq-posenc pack` wrote, or bpe= (subword_nmt "
                "with bpe_codes=, sentencepiece with sentencepiece_model=, None to pass token "
                "numbers, or gpt2, which fairseq downloads)"
            )
        return from_pretrained(
            path, checkpoint_file, data_name_or_path, archive_map=archive_map, **settings
        )

    return wrapper
