"""Packaging of fairseq_posenc. `scripts/setup.sh` is the easy way to a complete environment."""

from setuptools import find_packages, setup

RECIPES = ["sentencepiece", "sacremoses", "subword-nmt", "sacrebleu", "scikit-learn", "scipy"]
CONVERT = ["safetensors", "transformers"]
AMOS = ["pytorch-optimizer"]
PLOTS = ["matplotlib"]
# newer ones of the last two, which performer-pytorch asks for, would replace an older PyTorch
PERFORMER = ["performer-pytorch", "local-attention<1.10", "axial-positional-embedding<0.3"]
TEST = ["pytest", "pytest-xdist>=3.2", "ruff~=0.17.0"]

setup(
    name="fairseq_posenc",
    version="0.1.0",
    description="Position encodings for fairseq, as a --user-dir plug-in: rotary first",
    license="MIT",
    python_requires=">=3.8",
    packages=find_packages(include=["fairseq_posenc", "fairseq_posenc.*"]),
    # fairseq is no requirement on purpose. Three distributions carry it (the official one, its
    # fork for Python 3.11 and later, a checkout of its main branch) under different names, and a
    # requirement on one of them would overwrite another that is already installed.
    install_requires=["torch>=1.12", "numpy"],
    extras_require={
        "fairseq": [
            "fairseq==0.12.2; python_version < '3.10'",
            "fairseq-fixed==0.12.3.1; python_version >= '3.10'",
        ],
        "recipes": RECIPES,
        "convert": CONVERT,
        "bench": ["transformers<5", "gau-alpha", *PERFORMER],
        "plots": PLOTS,
        "zh": ["jieba"],
        "amos": AMOS,
        "test": TEST + RECIPES + CONVERT + PLOTS + AMOS,
    },
)
