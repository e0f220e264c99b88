"""Samples of several documents, for --document-mask."""

import torch
from support.helpers import LAYERS, PAD, VOCABULARY
from support.masked_language_models import tiny

EOS = VOCABULARY.eos()
MASK = "--document-mask"


def packed(begin=EOS):
    """Three samples of several documents, one of them padded, of lengths from 1 to 13."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(4, len(VOCABULARY), (3, 20), generator=generator)
    tokens[:, 0] = begin
    tokens[0, [5, 6, 14]] = tokens[1, [1, 13]] = tokens[2, 9] = EOS
    tokens[2, -3:] = PAD
    return tokens


def documents(tokens, causal):
    """Sample, first place and end of each document, by a loop over the tokens."""
    for row, numbers in enumerate(tokens.tolist()):
        real = [place for place, number in enumerate(numbers) if number != PAD]
        marks = [p if causal else p + 1 for p in real if numbers[p] == EOS]
        edges = sorted({real[0], *marks, real[-1] + 1})
        yield from ((row, start, end) for start, end in zip(edges, edges[1:]))


def masked_model(name, *flags):
    """A masked language model; *name* is ENCODING or LAYER:ENCODING."""
    layer, _, encoding = name.rpartition(":")
    return tiny(encoding, *LAYERS[layer], *flags)
