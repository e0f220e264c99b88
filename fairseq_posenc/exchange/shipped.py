"""The formats that are shipped, which importing registers, and the interfaces to add others."""

import fairseq_posenc.exchange.ctranslate2.export  # noqa: F401
import fairseq_posenc.exchange.huggingface.language_models  # noqa: F401
import fairseq_posenc.exchange.huggingface.masked  # noqa: F401
import fairseq_posenc.exchange.huggingface.modernbert  # noqa: F401
import fairseq_posenc.exchange.huggingface.released  # noqa: F401
import fairseq_posenc.exchange.huggingface.remote_code.export  # noqa: F401
import fairseq_posenc.exchange.huggingface.roformer  # noqa: F401
import fairseq_posenc.exchange.huggingface.t5  # noqa: F401
import fairseq_posenc.exchange.huggingface.translation  # noqa: F401
import fairseq_posenc.exchange.onnx  # noqa: F401
import fairseq_posenc.exchange.tupe  # noqa: F401
from fairseq_posenc.exchange.formats import FORMATS as FORMATS
from fairseq_posenc.exchange.formats import Exporter as Exporter
from fairseq_posenc.exchange.formats import Expressible as Expressible
from fairseq_posenc.exchange.formats import Flag as Flag
from fairseq_posenc.exchange.formats import ForeignModel as ForeignModel
from fairseq_posenc.exchange.formats import Imported as Imported
from fairseq_posenc.exchange.formats import Importer as Importer
from fairseq_posenc.exchange.formats import Report as Report
from fairseq_posenc.exchange.formats import Wanted as Wanted
from fairseq_posenc.exchange.formats import check_flags as check_flags
from fairseq_posenc.exchange.formats import export_flags as export_flags
from fairseq_posenc.exchange.formats import exporter_of as exporter_of
from fairseq_posenc.exchange.formats import importer_of as importer_of
from fairseq_posenc.exchange.formats import refuse_inexpressible as refuse_inexpressible
from fairseq_posenc.exchange.formats import register_format as register_format
from fairseq_posenc.exchange.native import NativeCheckpoint as NativeCheckpoint
from fairseq_posenc.exchange.reader import Reader as Reader
from fairseq_posenc.exchange.reader import Vocabulary as Vocabulary
from fairseq_posenc.exchange.reader import renumber as renumber
from fairseq_posenc.exchange.transfer import CheckpointExporter as CheckpointExporter
from fairseq_posenc.exchange.transfer import Exported as Exported
from fairseq_posenc.exchange.transfer import import_flags as import_flags
from fairseq_posenc.models.kinds import CAUSAL as CAUSAL
from fairseq_posenc.models.kinds import MASKED as MASKED
