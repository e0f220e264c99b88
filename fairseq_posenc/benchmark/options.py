"""What ``fairseq-posenc benchmark`` can be told, as far as it needs neither PyTorch nor fairseq."""

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
DTYPES = ("float32", "float16", "bfloat16")  # of PyTorch, under these names
BEAM = 4

#: What is timed, and the kind of model it is timed on; in this order, because generation ends
#: training.
JOBS = {
    "training": "translation",
    "generation": "translation",
    "masked-lm": "masked_lm",
    "lm-training": "language_model",
    "lm-generation": "language_model",
    "attention": "attention",
    "causal-attention": "attention",
}
ATTENTION_JOBS = [job for job, kind in JOBS.items() if kind == "attention"]
#: Kinds of which ``--length`` gives one table for each number, not a length for each side.
BY_LENGTH = ("masked_lm", "attention")
ATTENTION_ENTRIES = ["softmax", "elu", "softmax_features", "favor", "favor --favor-kernel relu"]

#: What is not given, without ``--lengths`` and with it.
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
