"""DAPE and FoX, by single files of their authors' repositories.

The files are to be beside each other in a folder on ``PYTHONPATH``; a digest tells others apart::

    raw=https://raw.githubusercontent.com
    dape=chuanyang-Zheng/DAPE/bde344a844f2bd1f498b2bac70240dcda41c50c1
    fox=zhixuan-lin/forgetting-transformer/883f260c636e87971339749b0d8310004794a5cc
    curl -O "$raw/$dape/DAPE.py"
    curl -O "$raw/$fox/src/forgetting_transformer/ops/forgetting_attention.py"

FoX's attention is a kernel for GPUs, which Triton interprets on a CPU (``TRITON_INTERPRET=1``).
"""

import contextlib
import hashlib
import importlib
import os
from typing import Any
from unittest import mock

import torch

from golden import Made, instantiate, normal

H, T = 2, 40


def imported(name: str, digest: str) -> Any:
    """The module in the file *name*.py, whose SHA-256 begins with *digest*."""
    module = importlib.import_module(name)
    with open(str(module.__file__), "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    if not found.startswith(digest):
        raise SystemExit(f"{module.__file__}: is not the file that the references were made with")
    return module


def dape(name: str) -> Made:
    """Logits (1, H, T, T) with ALiBi's bias, adapted; they count where the key is not later."""
    width = 6
    described = {
        "source": "github.com/chuanyang-Zheng/DAPE bde344a DAPE.py AliBi_DAPE",
        "config": {"heads": H, "dape_bias": "alibi", "dape_width": width},
        "parameters": {
            "first.weight": normal(width, 2 * H),
            "first.bias": normal(width),
            "second.weight": normal(H, width),
            "second.bias": normal(H),
        },
        "inputs": {"products": normal(1, H, T, T)},
    }
    reference = instantiate(name, described)
    layer = imported("DAPE", "97b5cc8e").AliBi_DAPE(H, mp_rank=0, mlp_width=width)
    layers = {"first": "mlp2.0", "second": "mlp2.2"}
    state = {
        key.replace(key.split(".")[0], layers[key.split(".")[0]]): value
        for key, value in reference["state_dict"].items()
    }
    layer.load_state_dict({**state, "slopes": layer.slopes})
    return described, {"logits": layer(reference["inputs"]["products"]).tril()}


def fox(name: str) -> Made:
    """Outputs (1, H, T, D) of causal attention with the bias of forget gates, in float16."""
    os.environ["TRITON_INTERPRET"] = "1"
    size = 16
    described = {
        "source": "github.com/zhixuan-lin/forgetting-transformer 883f260 forgetting_attention",
        "config": {"heads": H, "head_dim": size},
        "inputs": {
            **{part: normal(1, H, T, size) for part in "qkv"},
            "gates": normal(1, H, T, mean=1.0),  # before the sigmoid
        },
    }
    *vectors, gates = instantiate(name, described)["inputs"].values()
    gpu = {
        "get_device_capability": lambda *_: (8, 0),
        "device_of": lambda _: None,
        "device": lambda _: contextlib.nullcontext(),
    }
    with mock.patch.multiple(torch.cuda, **gpu):
        attend = imported("forgetting_attention", "6a71b9eb").forgetting_attention
        log_gates = torch.nn.functional.logsigmoid(gates)
        out = attend(*(x.half() for x in vectors), log_gates, head_first=True)
    return described, {"out": out.float()}


MAKERS = {"dape": dape, "fox": fox}
