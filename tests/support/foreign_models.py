"""A small model of another library for every format that can be imported.

Models of transformers' classes are exports of ours; test_foreign_classes.py imports models that
transformers itself creates.
"""

import json
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from support import tupe_checkpoints
from support.conversion import (
    OURS,
    SYMBOLS,
    convert,
    roformer_weights,
    save_folder,
    write_folder,
)
from support.expressed import EXPRESSED, FIRST_ROWS, checkpoint_of

from fairseq_posenc.models.kinds import MASKED

GAU_CONFIG = {
    "model_type": "gau_alpha",
    "architectures": ["GAUAlphaForMaskedLM"],
    "hidden_size": 16,
    "intermediate_size": 32,
    "attention_key_size": 8,
    "num_hidden_layers": 2,
    "hidden_act": "swish",
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "normalization": "softmax_plus",
    "attention_scale": True,
    "use_bias": False,
    "pad_token_id": 0,
}


def gau_weights(width=32, size=8):
    state = {
        "gau_alpha.embeddings.word_embeddings.weight": torch.randn(len(SYMBOLS), 16),
        "gau_alpha.embeddings.token_type_embeddings.weight": torch.randn(2, 16),
    }
    for layer in ("gau_alpha.encoder.layer.0.gau.", "gau_alpha.encoder.layer.1.gau."):
        state[layer + "i_dense.weight"] = torch.randn(2 * width + size, 16) / 3
        state[layer + "o_dense.weight"] = torch.randn(16, width) / 3
        for side in "qk":
            state[f"{layer}{side}_scaleoffset.weight"] = 1 + torch.randn(size)
    return state


def write_gau(folder, state=None, **config):
    state = gau_weights() if state is None else state
    return save_folder(folder, {**GAU_CONFIG, **config}, state, SYMBOLS)


def v2_weights():
    """RoFormer's weights without biases, norms and the transform layer of its head."""
    return {
        name: value
        for name, value in roformer_weights().items()
        if name.endswith("weight") and "LayerNorm" not in name and "transform" not in name
    }


def write_v2(folder, state=None, **config):
    state = v2_weights() if state is None else state
    second = {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"}
    return write_folder(folder, state, **{**second, **config})


def write_tupe(folder):
    return tupe_checkpoints.write(folder, tupe_checkpoints.released())


@lru_cache(maxsize=None)
def _exported(name):
    """The config.json, tensors and symbols of a class, exported with the words of SYMBOLS."""
    reason = "the models are saved with safetensors"
    safetensors = pytest.importorskip("safetensors.torch", reason=reason)
    words = [symbol for symbol in SYMBOLS if symbol not in OURS]
    symbols = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", *words, "[MASK]"]
    if EXPRESSED[FIRST_ROWS[name]].kind is not MASKED:
        words.append("mask")  # here an ordinary word
    with TemporaryDirectory() as made:
        folder = Path(made)
        path = checkpoint_of(folder / "ours", FIRST_ROWS[name], words)
        convert("export", name, path, folder / "theirs")
        config = json.loads((folder / "theirs" / "config.json").read_text())
        state = safetensors.load_file(folder / "theirs" / "model.safetensors")
    if name == "hf-roberta":  # this class has other names for special symbols
        symbols = [OURS.get(symbol, symbol) for symbol in symbols]
    return config, state, symbols


def write_class(name, folder):
    """Write a random model of a class of transformers."""
    return save_folder(folder, *_exported(name))


#: For each format, a function that writes a random model and returns the path to ``import``.
SOURCES = {
    **{name: partial(write_class, name) for name in FIRST_ROWS},
    "hf-roformer": write_folder,
    "roformer-v2": write_v2,
    "gau-alpha": write_gau,
    "tupe": write_tupe,
}
