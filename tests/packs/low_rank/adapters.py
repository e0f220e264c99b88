"""Checkpoints of low-rank matrices, and what they adapt, for the exchange with PEFT."""

import json
import re

import torch
from fairseq.models import FairseqEncoderDecoderModel

from fairseq_posenc.checkpoints import loader
from fairseq_posenc.checkpoints.reading import read_checkpoint, write_checkpoint
from fairseq_posenc.packs.low_rank.models import DIGEST, digest_of

QV = "q_proj,v_proj"
_LLAMA = "q_proj,k_proj,v_proj,out_proj,fc1,fc2,fc_gate"


#: What is adapted of a row of support.expressed.
ADAPTED = {
    **{"llama": QV, "grouped": _LLAMA, "share": QV, "neox": "k_proj,q_proj,v_proj,out_proj,fc1"},
    **{"bloom": "k_proj,fc2", "gpt2": "v_proj,out_proj,fc1,fc2", "roberta": "q_proj,fc2"},
    **{"modernbert": "q_proj,k_proj,fc_gate", "bart": QV, "geglu": QV},
}


def adapt(base, layers, rank=2, alpha=3.0, **settings):
    """Write adapted.pt beside a checkpoint: random matrices, as training saves them.

    Args:
        base: the checkpoint.
        layers: value of ``--lora-layers``.
        settings: other settings that differ from the base.
    """
    state = read_checkpoint(str(base))
    whole, ends = state["model"], tuple(f".{name}.weight" for name in layers.split(","))
    matrices = {DIGEST: digest_of(whole)}
    for name, weight in whole.items():
        if name.endswith(ends):
            prefix = name[: -len("weight")]
            matrices[f"{prefix}lora_A"] = torch.randn(rank, weight.size(1)) / 4
            matrices[f"{prefix}lora_B"] = torch.randn(weight.size(0), rank) / 4
    given = {"lora_rank": rank, "lora_alpha": alpha, "lora_layers": layers, "lora_base": str(base)}
    state["cfg"]["model"].update(given, **settings)
    state["model"] = matrices
    write_checkpoint(state, str(base.parent / "adapted.pt"))
    return base.parent / "adapted.pt"


@torch.no_grad()
def our_logits(path):
    """Logits (2, 9, V) of a checkpoint, of the source and the target where there are both."""
    model, tokens = loader.load(str(path)).model, _tokens()
    if isinstance(model, FairseqEncoderDecoderModel):
        return model(tokens, torch.tensor([9, 9]), tokens.flip(0))[0]
    return model(tokens)[0]


@torch.no_grad()
def their_logits(model):
    """The same of a model of transformers or PEFT, whose symbols have fairseq's numbers."""
    tokens = _tokens()
    more = {"decoder_input_ids": tokens.flip(0)} if model.config.is_encoder_decoder else {}
    return model.eval()(input_ids=tokens, **more).logits


def _tokens():
    tokens = torch.randint(4, 6, (2, 9), generator=torch.Generator().manual_seed(4))
    tokens[:, 0] = 2
    return tokens


def their_model(transformers, folder):
    """The whole model in a folder, by the class that its configuration names."""
    config = json.loads((folder / "config.json").read_text())
    return getattr(transformers, config["architectures"][0]).from_pretrained(folder).float()


@torch.no_grad()
def apply_by_hand(model, folder):
    """Add (α / r) B A to the weights of a model of transformers, as an adapter says."""
    from safetensors.torch import load_file

    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    names = {re.fullmatch(r"base_model\.model\.(.*)\.lora_[AB]\.weight", n)[1] for n in tensors}
    for name in names:
        rank, alpha = config["r"], config["lora_alpha"]
        for end, value in config["rank_pattern"].items():
            rank = value if f".{name}".endswith(f".{end}") else rank
        for end, value in config["alpha_pattern"].items():
            alpha = value if f".{name}".endswith(f".{end}") else alpha
        a, b = (tensors[f"base_model.model.{name}.lora_{part}.weight"].double() for part in "AB")
        assert len(a) == rank == b.size(1)
        product = alpha / rank * b @ a
        weight = model.get_submodule(name).weight
        weight += (product.t() if config["fan_in_fan_out"] else product).float()
    ends = tuple(f".{end}" for end in config["target_modules"])
    assert {n for n, _ in model.named_modules() if f".{n}".endswith(ends)} == names  # as PEFT does
    return model
