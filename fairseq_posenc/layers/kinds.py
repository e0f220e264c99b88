"""``--layer``: the kinds of layers, by name."""

from typing import Callable, Dict, NamedTuple

from torch import nn

from fairseq_posenc.layers.gated import GatedDecoderLayer, GatedEncoderLayer
from fairseq_posenc.layers.transformer import TransformerDecoderLayer, TransformerEncoderLayer


class LayerKind(NamedTuple):
    """The layers of one kind, by the stack that they are in."""

    encoder: Callable[..., nn.Module]
    decoder: Callable[..., nn.Module]


LAYERS: Dict[str, LayerKind] = {
    "transformer": LayerKind(TransformerEncoderLayer, TransformerDecoderLayer),
    "gated": LayerKind(GatedEncoderLayer, GatedDecoderLayer),
}
