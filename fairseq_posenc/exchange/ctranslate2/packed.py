"""The export of a model that goes into a model folder."""

from typing import Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import load
from fairseq_posenc.exchange.ctranslate2.export import CTranslate2Exporter
from fairseq_posenc.exchange.formats import Report, Wanted
from fairseq_posenc.exchange.verify import refuse_overflow
from fairseq_posenc.serving.inputs import overrides_of
from fairseq_posenc.serving.model_folder import EXPORT, ModelFolder
from fairseq_posenc.serving.pack import Pack


def export_packed(wanted: Pack, folder: ModelFolder) -> Optional[Report]:
    """Export the model of a folder, or at least check that it fits the dictionaries.

    Args:
        wanted: what is packed.
        folder: the folder to be, with its dictionaries.

    Raises:
        UsageError: the model cannot be loaded, or must be exported and cannot.
    """
    overrides = overrides_of(folder)
    request = Wanted(
        wanted.checkpoint,
        folder.file(EXPORT),
        verify=True,
        options={"quantization": wanted.quantization, "model_overrides": overrides},
    )
    try:
        if wanted.export != "no":
            return CTranslate2Exporter().export(request)
    except UsageError as error:
        if wanted.export == "yes":
            raise
        print(f"note: not exported: {error.message}")
    refuse_overflow(load(wanted.checkpoint, overrides=overrides))
    return None
