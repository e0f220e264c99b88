"""The formats that are shipped, which importing registers, and the interfaces to add others."""

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
from fairseq_posenc.exchange.formats import (  # noqa: F401
    FORMATS,
    Exporter,
    Expressible,
    ForeignModel,
    Imported,
    Importer,
    Report,
    Wanted,
    check_flags,
    exporter_of,
    importer_of,
    refuse_inexpressible,
    register_format,
)
from fairseq_posenc.exchange.kinds import CAUSAL, MASKED  # noqa: F401
from fairseq_posenc.exchange.native import NativeCheckpoint  # noqa: F401
from fairseq_posenc.exchange.reader import Reader, Vocabulary, renumber  # noqa: F401
from fairseq_posenc.exchange.transfer import CheckpointExporter, Exported  # noqa: F401
