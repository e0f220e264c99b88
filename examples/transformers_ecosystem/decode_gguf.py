#!/usr/bin/env python3
"""Decode a GGUF file with llama.cpp's Python binding, and compare the outputs with fairseq's.

    python decode_gguf.py MODEL FILE.gguf TEXT [--prompts N]

MODEL is the model folder. The first words of the lines of TEXT are the prompts, which llama.cpp
splits by the tokenizer in FILE.gguf.
"""

import argparse

from greedy import END, STEPS, Reference
from llama_cpp import Llama


def decode(model, numbers):
    """The most probable continuation of a prompt."""
    found = list(numbers)
    for token in model.generate(numbers, top_k=1, temp=0.0, repeat_penalty=1.0, reset=True):
        found.append(token)
        if token == END or len(found) == len(numbers) + STEPS:
            return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("MODEL", "FILE", "TEXT"):
        parser.add_argument(name.lower(), metavar=name)
    parser.add_argument("--prompts", type=int, default=50, metavar="N", help="(50)")
    args = parser.parse_args()
    reference = Reference(args.model, args.text, args.prompts)
    model = Llama(args.file, n_ctx=128, n_threads=1, verbose=False)
    split = [model.tokenize(prompt.encode(), add_bos=True) for prompt in reference.prompts]
    same = sum(a == b for a, b in zip(reference.numbers, split))
    print(f"{args.file}: {same} of {len(split)} prompts split the same")
    continued = [decode(model, numbers) for numbers in reference.numbers]
    print(f"{args.file}: {reference.same(continued)}")


if __name__ == "__main__":
    main()
