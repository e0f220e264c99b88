"""Optional third-party packages, and packs, which are optional folders in this package.

A pack adds its features in these modules, each of which is imported only where it is used:

============  ===================================================================
``register``  registers encodings, attentions, models, tasks and the like
``exchange``  registers formats and adapters for import and export
``serving``   registers the hub interface and extra files of a task's model folders
``commands``  adds ``COMMANDS`` to ``fairseq-posenc``; imports neither PyTorch nor fairseq
============  ===================================================================
"""

import importlib
import importlib.util
import pkgutil
from types import ModuleType
from typing import Any, List, NamedTuple, Optional

from fairseq_posenc.basics.errors import UsageError


class Extra(NamedTuple):
    """A package that only some commands need."""

    module: str  # the import name
    install: str  # arguments of ``pip install``
    purpose: str  # the feature that needs it


EXTRAS = (
    Extra("sentencepiece", "sentencepiece", "recipes"),
    Extra("sacremoses", "sacremoses", "recipes"),
    Extra("subword_nmt", "subword-nmt", "recipes"),
    Extra("sacrebleu", "sacrebleu", "recipes"),
    Extra("sklearn", "scikit-learn", "recipes"),
    Extra("scipy", "scipy", "recipes"),
    Extra("matplotlib", "matplotlib", "plots"),
    Extra("transformers", "transformers", "import and export"),
    Extra("tokenizers", "tokenizers", "tokenizers of transformers"),
    Extra("rjieba", "rjieba", "the tokenizer of RoFormer"),
    Extra("safetensors", "safetensors", "import and export"),
    Extra("ctranslate2", "ctranslate2", "export and translation without PyTorch"),
    Extra("onnx", "onnx", "export to ONNX"),
    Extra("onnxruntime", "onnxruntime", "export to ONNX"),
    Extra("jieba", "jieba", "Chinese text"),
    Extra("pytorch_optimizer", "pytorch-optimizer", "--optimizer amos"),
)


def import_extra(module: str, needed_by: str, install: Optional[str] = None) -> Any:
    """Import an optional package.

    The error message begins with *needed_by*, the flag or file that requires the package, and ends
    with *install*, the arguments of ``pip install`` (default: those in :data:`EXTRAS`).
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if install is None:
            package = module.partition(".")[0]
            known = (extra.install for extra in EXTRAS if extra.module == package)
            install = next(known, package)
        raise UsageError(
            f"{needed_by}: {module} cannot be imported ({error}); run: pip install {install}"
        ) from error


def load(part: str) -> List[ModuleType]:
    """Import the module *part*, such as ``register``, of every pack that has it; sorted by pack."""
    packs = importlib.import_module("fairseq_posenc.packs")
    folders = pkgutil.iter_modules(packs.__path__, f"{packs.__name__}.")
    names = [f"{folder.name}.{part}" for folder in folders]
    return [importlib.import_module(name) for name in names if importlib.util.find_spec(name)]
