"""FoX: gates of the tokens between a query and a key decide how much the key is forgotten.

Forgetting Transformer, Lin, Nikishin, He, Courville, arXiv 2503.02130, Eq. 5 to 8.  Every head has
a gate for each token.  Log gates of all tokens after a key, up to a query, are added to the logit:

    f_t = σ(w · x_t + b)
    D_ij = Σ_{l=j+1}^{i} log f_l = c_i - c_j,    c_t = Σ_{l≤t} log f_l
    α_ij = 1/√D · q_i · k_j + D_ij

x_t is the input of the layer.  A cache keeps log f_t of each token with its key.  Fused attention
takes D as its bias, so q·k is not computed separately.  Encoders cannot use FoX, because the paper
does not define D for keys after the query.
"""

from typing import Dict, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.encodings.base import Stack
from fairseq_posenc.encodings.content import Content, ContentBias
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options

_LOG_GATES = "fox_log_gates"


@register_encoding(
    "fox",
    paper="Lin et al. 2025, arXiv 2503.02130",
    summary="a gate of each token makes later queries forget earlier keys (FoX)",
    causal_only="its gates are defined only for keys before a query",
)
class ForgetGates(ContentBias):
    """c_i - c_j, the sum of the log gates after a key, up to a query.

    Later keys, if visible, get 0: they are not forgotten.
    """

    is_product = False

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        # not a projection module, so that --no-bias keeps this bias, as in the released code
        self.weight = nn.Parameter(torch.empty(stack.num_heads, stack.width))
        self.bias = nn.Parameter(torch.zeros(stack.num_heads))
        nn.init.normal_(self.weight, std=0.02)

    def key_states(self, x: Tensor) -> Dict[str, Tensor]:
        """log f, (B, H, T, 1), float32 or wider, of tokens with inputs *x* (B, T, C)."""
        gates = F.linear(x, self.weight, self.bias)  # (B, T, H)
        gates = gates.to(AT_LEAST_FLOAT32[gates.dtype])
        return {_LOG_GATES: F.logsigmoid(gates).transpose(1, 2).unsqueeze(-1)}

    def forward(self, content: Content, vectors: Optional[Tensor] = None) -> Tensor:
        """Logits (B, H, T, S), float32 or wider; arguments as in :class:`ContentBias`."""
        sums = content.key_states[_LOG_GATES].squeeze(-1).cumsum(dim=-1)  # c, (B, H, S)
        length = content.q.size(2)
        of_queries = sums[..., sums.size(-1) - length :].unsqueeze(-1)
        return (of_queries - sums.unsqueeze(-2)).clamp(max=0.0)  # above 0 only for later keys
