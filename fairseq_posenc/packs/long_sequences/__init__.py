"""Kernels for long sequences beside those of the core: BigBird, Reformer, Linformer, cosFormer."""

from fairseq_posenc.packs.long_sequences import (  # noqa: F401 - importing a kernel registers it
    bigbird,
    cosformer,
    linformer,
    reformer,
    softmax_features,
)
