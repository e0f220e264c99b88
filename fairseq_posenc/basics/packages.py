"""Optional packages, their purposes and the commands that install them."""

import importlib
from typing import Any, NamedTuple

from fairseq_posenc.basics.errors import UsageError


class Extra(NamedTuple):
    """A package that only some commands need.

    Args:
        module: its import name.
        install: arguments of ``pip install``.
        purpose: the feature that needs it.
    """

    module: str
    install: str
    purpose: str


EXTRAS = (
    Extra("sentencepiece", "sentencepiece", "recipes"),
    Extra("sacremoses", "sacremoses", "recipes"),
    Extra("subword_nmt", "subword-nmt", "recipes"),
    Extra("sacrebleu", "sacrebleu", "recipes"),
    Extra("sklearn", "scikit-learn", "recipes"),
    Extra("scipy", "scipy", "recipes"),
    Extra("matplotlib", "matplotlib", "plots"),
    Extra("statsmodels", "statsmodels", "studies"),
    Extra("jinja2", "jinja2", "studies"),
    Extra("submitit", "submitit", "studies on a Slurm cluster"),
    Extra("transformers", "transformers", "import and export"),
    Extra("tokenizers", "tokenizers", "tokens of transformers"),
    Extra("rjieba", "rjieba", "tokens of RoFormer"),
    Extra("safetensors", "safetensors", "import and export"),
    Extra("ctranslate2", "ctranslate2", "export and translation without PyTorch"),
    Extra("onnx", "onnx", "export to ONNX"),
    Extra("onnxruntime", "onnxruntime", "export to ONNX"),
    Extra("jieba", "jieba", "Chinese text"),
    Extra("pytorch_optimizer", "pytorch-optimizer", "--optimizer amos"),
)
#: Other implementations that the benchmark measures.
PEERS = (
    Extra("performer_pytorch", "performer-pytorch", "benchmarks"),
    Extra("x_transformers", "x-transformers", "benchmarks"),
    Extra("rotary_embedding_torch", "rotary-embedding-torch", "benchmarks"),
    # what it requires besides PyTorch is not needed for its attention, and old
    Extra("torchscale", "--no-deps torchscale", "benchmarks"),
    Extra("gau_alpha", "gau-alpha 'transformers<4.47'", "benchmarks"),
)
_INSTALL = {extra.module: extra.install for extra in (*EXTRAS, *PEERS)}


def import_extra(module: str, needed_by: str) -> Any:
    """Import an optional package.

    Args:
        module: a module of :data:`EXTRAS` or :data:`PEERS`.
        needed_by: the flag or file that requires it, for the error message.

    Raises:
        UsageError: it cannot be imported; the message gives the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        install = _INSTALL[module.partition(".")[0]]
        raise UsageError(
            f"{needed_by}: {module} cannot be imported ({error}); run: pip install {install}"
        ) from error
