"""Rotations, scaled frequencies, ALiBi, T5 buckets and Performer attention of other packages."""

from functools import partial

import torch
from performer_pytorch import performer_pytorch
from rotary_embedding_torch import RotaryEmbedding
from transformers import LlamaConfig, T5Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama import modeling_llama
from transformers.models.roformer import modeling_roformer
from transformers.models.t5.modeling_t5 import T5Attention
from x_transformers.x_transformers import AlibiPositionalBias

from golden import Made, instantiate, normal, source

T, D = 9, 16  # length, head size


def rotary_hf_roformer(name: str) -> Made:
    described = {
        "source": source("transformers", "models/roformer"),
        "config": {"head_dim": D},
        "inputs": {"q": normal(1, 2, T, D), "k": normal(1, 2, T, D)},
    }
    q, k = instantiate(name, described)["inputs"].values()
    table = modeling_roformer.RoFormerSinusoidalPositionalEmbedding(64, D)
    rotate = modeling_roformer.RoFormerSelfAttention.apply_rotary_position_embeddings
    outputs = {}
    for end, past in (("", 0), ("_past3", 3)):
        outputs["q" + end], outputs["k" + end] = rotate(table([1, T], past)[None, None], q, k)
    return described, outputs


def rotary_hf_llama(name: str) -> Made:
    described = {
        "source": source("transformers", "models/llama"),
        "config": {"head_dim": D, "pairing": "half"},
        "inputs": {"q": normal(2, 2, T, D), "k": normal(2, 2, T, D)},
        "integers": {"position_ids": [list(range(T)), [0, 0, 1, 5, 9, 10, 30, 31, 60]]},
    }
    inputs = instantiate(name, described)["inputs"]
    shape = {"hidden_size": 2 * D, "num_attention_heads": 2}
    rotary = modeling_llama.LlamaRotaryEmbedding(config=LlamaConfig(**shape))
    cos, sin = rotary(inputs["q"], inputs["position_ids"])
    q, k = modeling_llama.apply_rotary_pos_emb(inputs["q"], inputs["k"], cos, sin)
    return described, {"q": q, "k": k}


def rotary_rt(name: str) -> Made:
    described = {
        "source": source("rotary-embedding-torch"),
        "config": {"head_dim": D, "pairing": "interleaved"},
        "inputs": {"q": normal(1, 2, T, D), "k": normal(1, 2, T, D)},
    }
    q, k = instantiate(name, described)["inputs"].values()
    outputs = {
        "full": RotaryEmbedding(D).rotate_queries_or_keys(q),
        "offset5": RotaryEmbedding(D).rotate_queries_or_keys(q, offset=5),
        "partial8": RotaryEmbedding(D // 2).rotate_queries_or_keys(q),
        "theta500": RotaryEmbedding(D, theta=500).rotate_queries_or_keys(q),
        "linear2": RotaryEmbedding(D, interpolate_factor=2.0).rotate_queries_or_keys(q),
        "ntk4": RotaryEmbedding(D, theta_rescale_factor=4.0).rotate_queries_or_keys(q),
    }
    cached = RotaryEmbedding(D).rotate_queries_with_cached_keys(q[:, :, -3:], k)
    outputs["cached_q"], outputs["cached_k"] = cached
    return described, outputs


def rope_inv_freq(name: str) -> Made:
    """Inverse frequencies (cases, 32), and factors (cases,) of cosines and sines."""
    cases = [
        {"rule": rule, "length": length, "factor": factor, "current": current}
        for length in (512, 1024, 2048)
        for factor in (2.0, 4.0, 8.0)
        for rule, current in (
            *(("linear", length), ("yarn", length), ("llama3", length)),
            *(("dynamic", int(length * times)) for times in (0.5, 1, 1.5, 2, factor)),
        )
    ]
    described = {
        "source": source("transformers", "modeling_rope_utils"),
        "config": {"head_dim": 64, "base": 10000.0, "cases": cases},
    }
    found = []
    for case in cases:
        scaling = {"rope_type": case["rule"], "factor": case["factor"]}
        if case["rule"] == "llama3":  # as in its released configurations
            turns = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
            scaling.update(turns, original_max_position_embeddings=case["length"])
        config = LlamaConfig(
            hidden_size=128,
            num_attention_heads=2,
            max_position_embeddings=case["length"],
            rope_scaling=scaling,
        )
        found.append(ROPE_INIT_FUNCTIONS[case["rule"]](config, "cpu", seq_len=case["current"]))
    frequencies, factors = zip(*found)
    factors = torch.tensor(factors, dtype=torch.double)
    return described, {"inv_freq": torch.stack(frequencies), "attention_factor": factors}


def alibi(name: str) -> Made:
    heads = [4, 6, 8, 12]
    described = {
        "source": f"{source('x-transformers')}; bloom_*: {source('transformers')} models/bloom",
        "config": {"heads": heads, "length": T},
    }
    outputs = {}
    for h in heads:
        bias = AlibiPositionalBias(h)
        outputs[f"slopes_h{h}"], outputs[f"bias_h{h}"] = bias.slopes, bias(T, T)
        outputs[f"bias_h{h}_last5"] = AlibiPositionalBias(h)(5, T)
        ones = torch.ones(1, T, dtype=torch.long)
        outputs[f"bloom_bias_h{h}"] = build_alibi_tensor(ones, h, torch.float32).view(h, 1, T)
    return described, outputs


def t5_bucket(name: str) -> Made:
    """Buckets of distances, and the bias (H, T, T) of an encoder and of a decoder."""
    heads, key = 2, "relative_attention_bias.weight"
    described = {
        "source": source("transformers", "models/t5"),
        "config": {"heads": heads, "length": 40, "relative_position": "key minus query"},
        "parameters": {key: normal(32, heads)},
        "integers": {"relative_position": list(range(-300, 301))},
    }
    reference = instantiate(name, described)
    relative = reference["inputs"]["relative_position"]
    outputs = {
        f"{kind}_n{buckets}_m{most}": T5Attention._relative_position_bucket(
            relative, kind == "bi", buckets, most
        )
        for kind in ("bi", "uni")
        for buckets, most in ((32, 128), (16, 64), (64, 256), (32, 20))
    }
    for kind in ("bi", "uni"):
        config = T5Config(d_model=16, d_kv=8, num_heads=heads, is_decoder=kind == "uni")
        attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        attention.relative_attention_bias.weight.copy_(reference["state_dict"][key])
        outputs[f"{kind}_bias"] = attention.compute_bias(40, 40)[0, :, ::13]
    return described, outputs


def performer(relu: bool, causal: bool, name: str) -> Made:
    size, features = 8, 16
    described = {
        "source": source("performer-pytorch"),
        "config": {
            "nb_features": features,
            "softmax_kernel_eps": 1e-4,
            "generalized_kernel_eps": 1e-3,
            "causal_eps": 1e-6,
        },
        "parameters": {"projection_matrix": normal(features, size)},
        "inputs": {letter: normal(2, 2, 12, size) for letter in "qkv"},
    }
    reference = instantiate(name, described)
    q, k, v = reference["inputs"].values()
    attention = performer_pytorch.FastAttention(
        size, features, causal=causal, generalized_attention=relu
    )
    attention.load_state_dict(reference["state_dict"])
    projection = {"projection_matrix": attention.projection_matrix}
    if relu:
        kernel = partial(
            performer_pytorch.generalized_kernel, kernel_fn=torch.nn.ReLU(), **projection
        )
        features_of_q, features_of_k = kernel(q), kernel(k)
    else:
        kernel = partial(performer_pytorch.softmax_kernel, **projection)
        features_of_q, features_of_k = kernel(q, is_query=True), kernel(k, is_query=False)
    outputs = {"q_feat": features_of_q, "k_feat": features_of_k, "out": attention(q, k, v)}
    return described, outputs


MAKERS = {
    "rotary_hf_roformer": rotary_hf_roformer,
    "rotary_hf_llama": rotary_hf_llama,
    "rotary_rt": rotary_rt,
    "rope_inv_freq": rope_inv_freq,
    "alibi": alibi,
    "t5_bucket": t5_bucket,
    "performer_softmax": partial(performer, False, False),
    "performer_relu": partial(performer, True, False),
    "performer_relu_causal": partial(performer, True, True),
}
