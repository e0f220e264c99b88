"""Checkpoints with random parameters, in the form in which TUPE's released code writes them."""

from argparse import Namespace

import torch
from support.conversion import linear, norm

WORDS = [f"w{number}" for number in range(10)]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<file>", "<email>", "<url>"]
ARGS = {
    **{"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 24},
    **{"encoder_attention_heads": 2, "activation_fn": "gelu", "encoder_normalize_before": False},
    **{"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.0, "max_positions": 20},
}
# ARGS, and further flags of the released model, which a checkpoint may lack
FLAGS = {"pooler_activation_fn": "tanh", "max_rel_pos": 128, "attn_scale_factor": 2, **ARGS}


def released(relative=True, embedding_norm=True, before=False, early=False, heads=()):
    """Random parameters of a model, under the names that the released code uses."""
    stack = "decoder.sentence_encoder."
    size = len(SPECIAL) + len(WORDS) + 1
    embedding = torch.randn(size, 16)
    state = {
        stack + "embed_tokens.weight": embedding,
        stack + "pos.weight": torch.randn(21, 16),
        **norm(stack + "pos_ln", 16),
        "decoder.lm_head.weight": embedding,
        "decoder.lm_head.bias": torch.randn(size),
        **linear("decoder.lm_head.dense", 16, 16),
        **norm("decoder.lm_head.layer_norm", 16),
    }
    if early:
        state.update(linear(stack + "pos_proj", 32, 16))
    else:
        for side in "qk":
            state.update(linear(f"{stack}pos_{side}_linear", 16, 16))
    for number in range(2):
        layer = f"{stack}layers.{number}."
        both = linear(layer + "self_attn.in_proj", 48, 16)
        state.update({key.replace("in_proj.", "in_proj_"): v for key, v in both.items()})
        state.update(linear(layer + "self_attn.out_proj", 16, 16))
        state.update(norm(layer + "self_attn_layer_norm", 16))
        state.update(linear(layer + "fc1", 24, 16))
        state.update(linear(layer + "fc2", 16, 24))
        state.update(norm(layer + "final_layer_norm", 16))
    if embedding_norm:
        state.update(norm(stack + "emb_layer_norm", 16))
    if before:
        state.update(norm(stack + "emb_out_layer_norm", 16))
    if relative:
        state[stack + "relative_attention_bias.weight"] = torch.randn(33, 2)
    for name, dense in heads:
        state.update(linear(f"classification_heads.{name}.out_proj", 3, 16))
        if dense:
            state.update(linear(f"classification_heads.{name}.dense", 16, 16))
    return state


def write(folder, state, args=None, **more):
    """Write a checkpoint and its dictionary as fairseq 0.9 writes them."""
    folder.mkdir(exist_ok=True)
    content = {"args": Namespace(**{**ARGS, **(args or {})}), "model": state, **more}
    torch.save(content, folder / "checkpoint.pt")
    (folder / "dict.txt").write_text("".join(f"{w} {9 - n}\n" for n, w in enumerate(WORDS)))
    return folder / "checkpoint.pt"
