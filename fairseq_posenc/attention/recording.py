"""The flag of decoding steps that a GPU records; what records them is in the stacks."""

from dataclasses import dataclass
from typing import Optional

from fairseq_posenc.flags.settings import setting

FLAG = "--cuda-graphs"


@dataclass
class GraphFlags:
    """The flag of recorded decoding steps."""

    cuda_graphs: Optional[bool] = setting(
        False,
        "in generation on a GPU, record a decoding step as a CUDA graph and run that for every "
        "token; no effect in training and on a CPU",
        role="free",
    )
