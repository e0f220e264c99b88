"""DAPE and FoX, computed by single files from their authors' repositories.

Put both files into a folder on ``PYTHONPATH``; files with other digests are refused::

    raw=https://raw.githubusercontent.com
    dape=chuanyang-Zheng/DAPE/bde344a844f2bd1f498b2bac70240dcda41c50c1
    fox=zhixuan-lin/forgetting-transformer/883f260c636e87971339749b0d8310004794a5cc
    curl -O "$raw/$dape/DAPE.py"
    curl -O "$raw/$fox/src/forgetting_transformer/ops/forgetting_attention.py"

FoX's attention is a kernel for GPUs, which Triton interprets on a CPU (``TRITON_INTERPRET=1``).
"""

import contextlib
import hashlib
import importlib.util
import os
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from golden import Made, instantiate, normal

H, T = 2, 40
_DAPE = "97b5cc8e3717de91f0b34a9c4257bfdfac1be8f8f9bc75ae9b5d749c2aefbd24"
_FOX = "6a71b9ebef4dbfaf489ca32fb4ad32ed51a3dc474b6d681c21ddf026eef1b5d2"


def imported(name: str, digest: str) -> Any:
    """Import the file *name*.py, but only if its SHA-256 is *digest*."""
    found = importlib.util.find_spec(name)
    if found is None:
        raise SystemExit(f"{name}.py: is not on PYTHONPATH; see {__name__}")
    if hashlib.sha256(Path(str(found.origin)).read_bytes()).hexdigest() != digest:
        raise SystemExit(f"{found.origin}: is not the file with which references were made")
    return importlib.import_module(name)


def dape(name: str) -> Made:
    """Logits (1, H, T, T) of DAPE with ALiBi's bias; zero for later keys."""
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
    layer = imported("DAPE", _DAPE).AliBi_DAPE(H, mp_rank=0, mlp_width=width)
    for index, part in ((0, "first"), (2, "second")):
        for kind in ("weight", "bias"):
            parameter = getattr(layer.mlp2[index], kind)
            parameter.copy_(reference["state_dict"][f"{part}.{kind}"])
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
        attend = imported("forgetting_attention", _FOX).forgetting_attention
        log_gates = torch.nn.functional.logsigmoid(gates)
        out = attend(*(x.half() for x in vectors), log_gates, head_first=True)
    return described, {"out": out.float()}


MAKERS = {"dape": dape, "fox": fox}
