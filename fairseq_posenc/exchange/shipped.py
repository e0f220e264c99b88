"""The formats that are shipped, which importing registers, and the interfaces to add others."""

import fairseq_posenc.exchange.ctranslate2.export  # noqa: F401
import fairseq_posenc.exchange.gau_alpha  # noqa: F401
import fairseq_posenc.exchange.huggingface.language_models  # noqa: F401
import fairseq_posenc.exchange.huggingface.masked  # noqa: F401
import fairseq_posenc.exchange.huggingface.modernbert  # noqa: F401
import fairseq_posenc.exchange.huggingface.remote_code.export  # noqa: F401
import fairseq_posenc.exchange.huggingface.roformer  # noqa: F401
import fairseq_posenc.exchange.huggingface.t5  # noqa: F401
import fairseq_posenc.exchange.huggingface.translation  # noqa: F401
import fairseq_posenc.exchange.onnx  # noqa: F401
import fairseq_posenc.exchange.tupe  # noqa: F401
from fairseq_posenc.exchange.formats import (  # noqa: F401
    FORMATS,
    Exporter,
    Expressible,
    Flag,
    ForeignModel,
    Imported,
    Importer,
    Report,
    Wanted,
    check_flags,
    export_flags,
    exporter_of,
    importer_of,
    refuse_inexpressible,
    register_format,
)
from fairseq_posenc.exchange.native import NativeCheckpoint  # noqa: F401
from fairseq_posenc.exchange.reader import Reader, Vocabulary, renumber  # noqa: F401
from fairseq_posenc.exchange.transfer import CheckpointExporter, Exported, import_flags  # noqa: F401
from fairseq_posenc.models.kinds import CAUSAL, MASKED  # noqa: F401
