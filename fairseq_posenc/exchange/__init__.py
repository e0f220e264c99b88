"""Formats of other toolkits and engines: importing to checkpoints of this plug-in, and exporting.

:mod:`~fairseq_posenc.exchange.formats` has the registry and the interfaces; importing this package
registers the formats that are shipped.
"""

from fairseq_posenc.exchange import (  # noqa: F401 - importing registers
    causal_lm,
    ctranslate2_export,
    gau_alpha,
    masked_lm,
    onnx_export,
    remote_seq2seq,
    roformer,
    seq2seq,
    tupe,
)
from fairseq_posenc.exchange.formats import (
    FORMATS,
    Exporter,
    Expressible,
    ForeignModel,
    Imported,
    Importer,
    Report,
    Wanted,
    refuse_inexpressible,
    register_format,
)
from fairseq_posenc.exchange.kinds import CAUSAL, MASKED
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import Reader, Vocabulary, renumber
from fairseq_posenc.exchange.transfer import CheckpointExporter, Exported

__all__ = [
    "CAUSAL",
    "FORMATS",
    "MASKED",
    "CheckpointExporter",
    "Exported",
    "Exporter",
    "Expressible",
    "ForeignModel",
    "Imported",
    "Importer",
    "NativeCheckpoint",
    "Reader",
    "Report",
    "Vocabulary",
    "Wanted",
    "refuse_inexpressible",
    "register_format",
    "renumber",
]
