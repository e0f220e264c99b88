"""Importing this registers the kernels."""

from fairseq_posenc.packs.long_sequences import (  # noqa: F401 - importing a kernel registers it
    bigbird,
    cosformer,
    linformer,
    reformer,
    softmax_features,
)
