"""Linear attention: feature maps, sums over keys, and the layers that use them."""

from fairseq_posenc.attention.linear import layer  # noqa: F401 - importing registers; elu first

# isort: split
from fairseq_posenc.attention.linear import favor  # noqa: F401
