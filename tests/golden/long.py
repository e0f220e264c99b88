"""Transformer-XL with its memory, and the Funnel Transformer, computed by transformers."""

from typing import Any, Dict
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import FunnelConfig, FunnelModel
from transformers.models.deprecated.transfo_xl import TransfoXLConfig, TransfoXLModel

from golden import Made, instantiate, normal, source

SOURCE = source("transformers", "models/")
V, C, H, D, INNER = 11, 16, 2, 8, 24
SEGMENTS = [[[4, 9, 2, 7], [1, 0, 3, 10]], [[5, 5, 8, 0], [6, 2, 9, 4]], [[3, 1, 7], [8, 2, 6]]]
TEXTS = [[0, 4, 9, 2, 7, 1, 3, 10, 5, 8, 6], [0, 6, 2, 9, 4, 5, 5, 8, 1, 3, 7]]


def drawn(model: nn.Module) -> Dict[str, Any]:
    """Descriptions of random parameters; weights of norms have a mean of 1."""
    return {
        name: normal(*parameter.shape, mean=float("norm.weight" in name), std=0.3)
        for name, parameter in model.named_parameters()
    }


def transfo_xl_memory(name: str) -> Made:
    """Hidden states (B, T, C) of consecutive segments, with a memory of 6 tokens."""
    shape = {"vocab_size": V, "d_model": C, "d_embed": C, "n_head": H, "d_head": D}
    config = {**shape, "d_inner": INNER, "n_layer": 2, "mem_len": 6, "clamp_len": -1}
    others = {"same_length": False, "cutoffs": [], "div_val": 1, "dropout": 0.0}
    model = TransfoXLModel(TransfoXLConfig(**config, **others)).eval()
    described = {
        "source": SOURCE + "deprecated/transfo_xl",
        "config": config,
        "parameters": drawn(model),
        "integers": {f"segment{i}": tokens for i, tokens in enumerate(SEGMENTS)},
    }
    reference = instantiate(name, described)
    model.load_state_dict(reference["state_dict"], strict=False)  # the state lacks a buffer
    outputs: Dict[str, Tensor] = {}
    memory = [torch.zeros(0, 2, C)] * 2  # empty; the model would attend to the default, zeros
    # this version passes type_as a dtype, an argument that PyTorch's method does not have
    with mock.patch.object(torch.Tensor, "type_as", lambda x, y=None, dtype=None: x.to(dtype or y)):
        for key, tokens in reference["inputs"].items():
            found = model(tokens, mems=memory)
            outputs[key], memory = found.last_hidden_state, found.mems
    return described, outputs


def funnel(name: str) -> Made:
    """Hidden states of all stages and of the decoder, for texts of an odd number of tokens.

    [CLS] has a position like other tokens, so position logits of [CLS] are not masked.
    """
    shape = {"vocab_size": V, "d_model": C, "n_head": H, "d_head": D, "d_inner": INNER}
    config = {**shape, "block_sizes": [1, 2, 1], "num_decoder_layers": 1}
    rates = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "layer_norm_eps": 1e-5}
    others = {"truncate_seq": False, "hidden_act": "relu", "pad_token_id": None, **rates}
    model = FunnelModel(FunnelConfig(**config, **others)).eval()
    for part in (model.encoder, model.decoder):
        part.attention_structure.config.separate_cls = True
        begin = part.attention_structure.init_attention_inputs
        part.attention_structure.init_attention_inputs = lambda *a, begin=begin, **b: (
            *begin(*a, **b)[:3],
            None,
        )
    described = {
        "source": SOURCE + "funnel",
        "config": config,
        "parameters": drawn(model),
        "integers": {"tokens": TEXTS},
    }
    reference = instantiate(name, described)
    model.load_state_dict(reference["state_dict"])
    found = model(reference["inputs"]["tokens"], output_hidden_states=True)
    states = {f"state{i}": state for i, state in enumerate(found.hidden_states)}
    return described, {**states, "last": found.last_hidden_state}


MAKERS = {"transfo_xl_memory": transfo_xl_memory, "funnel": funnel}
