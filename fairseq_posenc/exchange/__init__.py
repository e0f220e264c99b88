"""Converting checkpoints: from other formats to ``posenc_masked_lm``, and back.

A format is one file that defines a :class:`~fairseq_posenc.exchange.base.Format`, and one entry in
:data:`FORMATS`.  Reading yields settings and parameters by fairseq's names; everything else
(the checkpoint, dict.txt, the comparison with the foreign model) is shared.
"""

from typing import Any, Dict, Tuple

from fairseq_posenc.exchange.base import Format
from fairseq_posenc.exchange.gau_alpha import GAU_ALPHA
from fairseq_posenc.exchange.hf_roformer import HF_ROFORMER
from fairseq_posenc.exchange.roformer_v2 import ROFORMER_V2
from fairseq_posenc.exchange.transfer import export_checkpoint, import_checkpoint
from fairseq_posenc.exchange.tupe import TUPE

_ALL: Tuple[Format[Any], ...] = (HF_ROFORMER, ROFORMER_V2, GAU_ALPHA, TUPE)
FORMATS: Dict[str, Format[Any]] = {format.name: format for format in _ALL}

__all__ = ["FORMATS", "Format", "export_checkpoint", "import_checkpoint"]
