#!/usr/bin/env python3
"""Quantise optimum's ONNX file to int8, decode with both files, and compare with fairseq.

    python decode_onnx.py MODEL ONNX TEXT [--prompts N]

MODEL is the model folder, ONNX the folder that `optimum-cli export onnx` wrote, and the first words
of the lines of TEXT are the prompts. The decoding loop uses onnxruntime, numpy and a cache, and
takes the most probable token until the end of the sentence.
"""

import argparse
import os

import numpy
import onnxruntime
from greedy import END, PAD, STEPS, Reference
from optimum.onnxruntime import ORTQuantizer
from optimum.onnxruntime.configuration import AutoQuantizationConfig
from transformers import AutoTokenizer


def decode(session, numbers):
    """The most probable continuation of a prompt, token by token, with a cache."""
    inputs = {each.name: each for each in session.get_inputs()}
    pasts = [name for name in inputs if name.startswith("past_key_values.")]
    shapes = {name: inputs[name].shape for name in pasts}  # (B, H, S, D); B and S are dynamic
    cache = {n: numpy.zeros((1, s[1], 0, s[3]), "float32") for n, s in shapes.items()}
    outputs = [each.name for each in session.get_outputs()]
    new, found = list(numbers), list(numbers)
    for _ in range(STEPS):
        given = {
            "input_ids": numpy.array([new]),
            "attention_mask": numpy.ones((1, len(found)), "int64"),
            "position_ids": numpy.arange(len(found) - len(new), len(found))[None],
        }
        found_now = dict(zip(outputs, session.run(None, {**given, **cache})))
        cache = {name: found_now[name.replace("past_key_values", "present")] for name in pasts}
        logits = found_now["logits"][0, -1]
        logits[PAD] = -numpy.inf
        new = [int(logits.argmax())]
        found += new
        if new == [END]:
            break
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("MODEL", "ONNX", "TEXT"):
        parser.add_argument(name.lower(), metavar=name)
    parser.add_argument("--prompts", type=int, default=50, metavar="N", help="(50)")
    args = parser.parse_args()
    config = AutoQuantizationConfig.avx2(is_static=False, per_channel=False)
    quantizer = ORTQuantizer.from_pretrained(args.onnx, file_name="model.onnx")
    quantizer.quantize(save_dir=args.onnx, quantization_config=config)
    reference = Reference(args.model, args.text, args.prompts)
    tokenizer = AutoTokenizer.from_pretrained(args.onnx)
    assert [tokenizer(prompt)["input_ids"] for prompt in reference.prompts] == reference.numbers
    for name in ("model.onnx", "model_quantized.onnx"):
        file = os.path.join(args.onnx, name)
        session = onnxruntime.InferenceSession(file)
        continued = [decode(session, numbers) for numbers in reference.numbers]
        print(f"{name}: {os.path.getsize(file) / 1e6:.2f} MB, {reference.same(continued)}")
    print(tokenizer.decode(reference.continued[0], skip_special_tokens=True))


if __name__ == "__main__":
    main()
