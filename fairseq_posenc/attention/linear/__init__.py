"""Linear attention: feature maps, sums over keys, and the layers that use them."""

from fairseq_posenc.attention.linear import (  # noqa: F401 - importing a kernel registers it
    elu,
    favor,
)
