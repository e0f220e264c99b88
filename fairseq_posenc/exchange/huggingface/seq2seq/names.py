"""Names in the layers of translation models, ours, and what T5 has beside other classes."""

from typing import Mapping, Tuple

from torch import Tensor

from fairseq_posenc.exchange.huggingface.names import FC1, GATE, NORM_1, NORM_2, K, Layout, Q, V

#: Modules of a decoder layer's attention to the source.
CROSS_Q, CROSS_K, CROSS_V, CROSS_OUT = (f"encoder_attn.{n}_proj" for n in ("q", "k", "v", "out"))
CROSS_NORM = "encoder_attn_layer_norm"
NORMS = (NORM_1, CROSS_NORM, NORM_2)
#: The modules that read the output of each norm of a layer, where norms come first.
BEHIND: Mapping[str, Tuple[str, ...]] = {
    NORM_1: (Q, K, V),
    CROSS_NORM: (CROSS_Q,),
    NORM_2: (FC1, GATE),
}


def _root(rows: Tensor, heads: int) -> float:
    return float((len(rows) / heads) ** 0.5)


#: Queries of a class that does not divide products by √D.
UNSCALED = Layout(
    lambda parts, heads: parts[0] / _root(parts[0], heads),
    lambda x, number, heads: [x * _root(x, heads)],
)
