"""Checkpoints in and out: foreign formats to ``posenc_masked_lm`` and back.

A format is one file with a :class:`~fairseq_posenc.convert.base.Format` and one entry in
:data:`FORMATS`.  Reading gives settings, parameters by our names and a vocabulary in fairseq's
order; everything else (the checkpoint, dict.txt, the comparison with the foreign side) is shared.
"""

from typing import Dict

from fairseq_posenc.convert.base import Format
from fairseq_posenc.convert.gau_alpha import GAU_ALPHA
from fairseq_posenc.convert.hf_roformer import HF_ROFORMER
from fairseq_posenc.convert.roformer_v2 import ROFORMER_V2
from fairseq_posenc.convert.transfer import export_checkpoint, import_checkpoint
from fairseq_posenc.convert.tupe import TUPE

FORMATS: Dict[str, Format] = {
    format.name: format for format in (HF_ROFORMER, ROFORMER_V2, GAU_ALPHA, TUPE)
}

__all__ = ["FORMATS", "Format", "export_checkpoint", "import_checkpoint"]
