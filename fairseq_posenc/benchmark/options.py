"""Choices and defaults of ``fairseq-posenc benchmark``; imports neither PyTorch nor fairseq."""

from typing import Any, Dict, NamedTuple


class Size(NamedTuple):
    """Channels, feed-forward channels and heads of a model."""

    channels: int
    ffn: int
    heads: int


SIZES = {
    "tiny": Size(128, 512, 4),
    "base": Size(512, 2048, 8),
    "bert-base": Size(768, 3072, 12),
    "big": Size(1024, 4096, 16),
}
DTYPES = ("float32", "float16", "bfloat16")  # names in PyTorch
BEAM = 4

#: The kind of model that each job is timed on; in this order, because a model cannot be trained
#: after generation.
JOBS = {
    "training": "translation",
    "generation": "translation",
    "masked-lm": "masked_lm",
    "lm-training": "language_model",
    "lm-generation": "language_model",
    "attention": "attention",
    "causal-attention": "attention",
}
#: Jobs that generate token by token.
GENERATION = ("generation", "lm-generation")
#: Jobs on running text, in which a sample may hold several documents.
PACKED = ("masked-lm", "lm-training")
ATTENTION_JOBS = [job for job, kind in JOBS.items() if kind == "attention"]
#: Kinds for which every number of ``--length`` gets a table, rather than one side of the model.
BY_LENGTH = ("masked_lm", "attention")
ATTENTION_ENTRIES = [
    *("softmax", "elu", "softmax_features", "favor", "favor --favor-kernel relu"),
    *("cosformer --position-encoding none", "reformer", "local --local-window 256", "bigbird"),
]

#: Defaults without ``--lengths`` and with it.
DEFAULTS: Dict[str, Any] = {
    "jobs": ["training", "generation"],
    "archs": ["transformer", "roformer_base"],
    "layers": 6,
    "vocabulary": 10000,
    "batch": 16,
    "length": [32],
}
DEFAULTS_WITH_LENGTHS: Dict[str, Any] = {
    "jobs": ATTENTION_JOBS,
    "archs": ATTENTION_ENTRIES,
    "layers": 1,
    "vocabulary": 5,
    "batch": 1,
}
