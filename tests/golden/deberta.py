"""Logits of DeBERTa's disentangled attention, computed by transformers."""

import torch
from transformers import DebertaConfig
from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention

from golden import Made, instantiate, normal, source

B, T, H, D, CLIP = 2, 9, 2, 8, 4


def deberta(name: str) -> Made:
    """Content-to-position and position-to-content logits, (B, H, T, T).

    Eq. 4 of the paper (He et al., arXiv 2006.03654) indexes the position-to-content logits by
    δ(j, i) (p2c), but the released code and transformers index them by δ(i, j) (p2c_released).  For
    p2c, we therefore pass transformers' code the negated distances.
    """
    described = {
        "source": source("transformers", "models/deberta"),
        "config": {"heads": H, "head_dim": D, "max_distance": CLIP},
        "parameters": {
            "rel_embeddings": normal(2 * CLIP, H * D),
            "pos_proj.weight": normal(H * D, H * D, std=0.3),
            "pos_q_proj.weight": normal(H * D, H * D, std=0.3),
        },
        "inputs": {"q": normal(B, H, T, D), "k": normal(B, H, T, D)},
    }
    reference = instantiate(name, described)
    state, (q, k) = reference["state_dict"], reference["inputs"].values()
    config = DebertaConfig(
        hidden_size=H * D,
        num_attention_heads=H,
        relative_attention=True,
        max_relative_positions=CLIP,
        pos_att_type=["c2p", "p2c"],
    )
    layer = DisentangledSelfAttention(config).eval()
    layer.pos_proj.weight.copy_(state["pos_proj.weight"])
    layer.pos_q_proj.weight.copy_(state["pos_q_proj.weight"])
    layer.pos_q_proj.bias.zero_()  # the paper has none
    scaled = q / (3 * D) ** 0.5  # as in the layer's forward
    distances = torch.arange(T)[:, None] - torch.arange(T)
    outputs = {}
    for kind, sign in (("c2p", 1), ("p2c", -1), ("p2c_released", 1)):
        layer.pos_att_type = [kind[:3]]
        given = scaled, k, sign * distances, state["rel_embeddings"], 3
        outputs[kind] = layer.disentangled_att_bias(*given)
    return described, outputs


MAKERS = {"deberta": deberta}
