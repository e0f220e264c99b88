"""The flags of softmax attention."""

from dataclasses import dataclass
from typing import Optional

from fairseq_posenc.flags.settings import setting


@dataclass
class QKNormFlags:
    """The flag of the norm of queries and keys."""

    qk_norm: Optional[bool] = setting(
        False,
        "normalise the queries and the keys of each head, before positions, with the norm of "
        "--norm",
        role="model",
    )


@dataclass
class SoftmaxFlags(QKNormFlags):
    """Flags of softmax attention."""

    log_length_scale: Optional[int] = setting(
        None,
        "multiply the products of queries and keys by log(n) / log(N), where n is the number of "
        "keys that a query sees and N is this length, usually that of training, in tokens "
        "(softmax_plus of gated units)",
        role="model",
        at_least=2,
        at_most=2**31 - 1,
    )
