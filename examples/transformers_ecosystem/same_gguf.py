#!/usr/bin/env python3
"""Compare a GGUF file of llama.cpp's converter with the model folder that was converted.

    python same_gguf.py MODEL FILE.gguf

The script compares all tensors, sizes, constants and symbols.
"""

import argparse

import gguf
import numpy

import fairseq_posenc

#: The modules of a layer: their names in GGUF and in fairseq.
MODULES = {
    "attn_norm": "self_attn_layer_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.out_proj",
    "ffn_norm": "final_layer_norm",
    "ffn_gate": "fc1",
    "ffn_up": "fc_gate",
    "ffn_down": "fc2",
}


def interleaved(rows, size):
    """Reorder rows of queries or keys: rows i and i + D/2 become neighbours, as in llama.cpp."""
    return rows.reshape(-1, 2, size // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODEL", help="the model folder")
    parser.add_argument("file", metavar="FILE.gguf", help="the file of llama.cpp's converter")
    args = parser.parse_args()
    hub = fairseq_posenc.from_pretrained(args.model)
    decoder, symbols = hub.models[0].decoder, hub.task.source_dictionary
    cfg, attention = decoder.cfg, decoder.layers[0].self_attn
    reader = gguf.GGUFReader(args.file)
    field = {name: value.contents() for name, value in reader.fields.items()}

    size = attention.head_dim
    expected = {
        "general.architecture": "llama",
        "llama.block_count": len(decoder.layers),
        "llama.embedding_length": decoder.embed_dim,
        "llama.feed_forward_length": decoder.layers[0].fc1.out_features,
        "llama.context_length": decoder.max_positions(),
        "llama.attention.head_count": attention.num_heads,
        "llama.attention.head_count_kv": attention.k_proj.out_features // size,
        "llama.rope.dimension_count": size,
        "llama.rope.freq_base": float(cfg.rotary_base),
        "llama.attention.layer_norm_rms_epsilon": numpy.float32(cfg.layer_norm_eps),
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(symbols.symbols),
        "tokenizer.ggml.bos_token_id": symbols.eos(),
        "tokenizer.ggml.eos_token_id": symbols.eos(),
        "tokenizer.ggml.padding_token_id": symbols.pad(),
        "tokenizer.ggml.unknown_token_id": symbols.unk(),
        "tokenizer.ggml.add_bos_token": True,
    }
    for name, value in expected.items():
        assert field.get(name) == value, f"{name}: {field.get(name)!r}, not {value!r}"

    state = {name: value.numpy() for name, value in hub.models[0].state_dict().items()}
    scale = decoder.embed_scale
    names = {"token_embd": state["decoder.embed_tokens.weight"] * numpy.float32(scale)}
    names["output"] = state["decoder.output_projection.weight"]
    names["output_norm"] = numpy.ones(decoder.embed_dim, "float32")
    for number in range(len(decoder.layers)):
        for theirs, ours in MODULES.items():
            name = f"decoder.layers.{number}.{ours}.weight"
            value = state.get(name, numpy.ones(decoder.embed_dim, "float32"))  # norms without gains
            if theirs in ("attn_q", "attn_k"):
                value = interleaved(value, size)
            names[f"blk.{number}.{theirs}"] = value
    tensors = {each.name: each.data for each in reader.tensors}
    assert set(tensors) == {f"{name}.weight" for name in names}
    for name, value in names.items():
        assert numpy.array_equal(tensors[f"{name}.weight"], value), name
    print(f"equal: {len(expected)} entries, {len(symbols)} symbols, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
