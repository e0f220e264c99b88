"""The classes of encoder and decoder layers, by the value of ``--layer``."""

from typing import Any, Dict

from fairseq_posenc.layers.gated import GatedDecoderLayer, GatedEncoderLayer
from fairseq_posenc.layers.transformer import TransformerDecoderLayer, TransformerEncoderLayer

LAYERS: Dict[str, Dict[str, Any]] = {
    "transformer": {"encoder": TransformerEncoderLayer, "decoder": TransformerDecoderLayer},
    "gated": {"encoder": GatedEncoderLayer, "decoder": GatedDecoderLayer},
}
