"""Formats of other toolkits and engines: importing to checkpoints of this plug-in, and exporting.

:mod:`~fairseq_posenc.exchange.formats` has the registry and the interfaces; importing this package
registers the formats that are shipped.
"""

from fairseq_posenc.exchange import (  # noqa: F401 - importing registers
    ctranslate2_export,
    gau_alpha,
    onnx_export,
    roformer_export,
    roformer_v2,
    tupe,
)
from fairseq_posenc.exchange.formats import (
    FORMATS,
    Exporter,
    ForeignModel,
    Imported,
    Importer,
    Report,
    Wanted,
    register_format,
)
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.transfer import CheckpointExporter, Exported
from fairseq_posenc.exchange.vocabulary import Vocabulary, renumber

__all__ = [
    "FORMATS",
    "CheckpointExporter",
    "Exported",
    "Exporter",
    "ForeignModel",
    "Imported",
    "Importer",
    "NativeCheckpoint",
    "Report",
    "Vocabulary",
    "Wanted",
    "register_format",
    "renumber",
]
