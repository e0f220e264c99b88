"""Masked language models of other libraries, in the shape that the benchmark asks for."""

import argparse
from typing import Any, Callable, Dict, List

import torch
from fairseq.data import Dictionary

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.benchmark.options import SIZES
from fairseq_posenc.flags.options import Layer

GATED = "gau_masked_lm_base"  # gau-alpha gets its weights


def hf_roformer(args: argparse.Namespace, symbols: Dictionary, _: object) -> torch.nn.Module:
    """Hugging Face's RoFormer with ``--layers`` layers.

    Args:
        args: the command line.
        symbols: the dictionary, for its size.
        _: not used.
    """
    package = import_extra("transformers", "--archs hf-roformer")
    channels, ffn, heads = SIZES[args.size]
    return package.RoFormerForMaskedLM(
        package.RoFormerConfig(
            vocab_size=len(symbols),
            hidden_size=channels,
            embedding_size=channels,
            num_hidden_layers=args.layers,
            num_attention_heads=heads,
            intermediate_size=ffn,
            max_position_embeddings=args.length[0],
        )
    )


def gau_alpha(
    args: argparse.Namespace, symbols: Dictionary, build: Callable[[List[str]], torch.nn.Module]
) -> torch.nn.Module:
    """The GAU model of the package gau-alpha, two units per layer, with the weights of ours.

    Args:
        args: the command line.
        symbols: the dictionary, for its size and padding symbol.
        build: builds one of our models from an architecture and its flags.

    Raises:
        UsageError: the package is missing, or the outputs of the two models differ.
    """
    package = import_extra("gau_alpha", "--archs gau-alpha")
    units = 2 * args.layers
    ours: Any = build([GATED, "--encoder-layers", str(units)]).eval()
    theirs = package.GAUAlphaForMaskedLM(
        package.GAUAlphaConfig(
            vocab_size=len(symbols),
            hidden_size=SIZES[args.size][0],
            intermediate_size=2 * SIZES[args.size][0],
            num_hidden_layers=units,
            max_position_embeddings=args.length[0],
            pad_token_id=symbols.pad(),
        )
    ).eval()
    _copy(ours.encoder.sentence_encoder, theirs)
    tokens = torch.arange(4, min(len(symbols), 4 + args.length[0])).unsqueeze(0)
    with torch.no_grad():
        difference = (ours(tokens)[0] - theirs(tokens).logits).abs().max().item()
    if not difference < 1e-3:
        raise UsageError(
            f"--archs gau-alpha: with the same weights its logits differ from ours by "
            f"{difference:.1e}; gau-alpha 0.0.3 with transformers 4 is known to agree"
        )
    return theirs


def _copy(ours: Layer, theirs: Layer) -> None:
    model = theirs.gau_alpha
    pairs = [
        (model.embeddings.word_embeddings.weight, ours.embed_tokens.weight),
        (model.embeddings.token_type_embeddings.weight, ours.embed_segments.weight),
        (theirs.cls.predictions.decoder.weight, ours.embed_tokens.weight),
    ]
    for layer, unit in zip(model.encoder.layer, ours.layers):
        pairs += [
            (layer.gau.i_dense.weight, unit.self_attn.in_proj.weight),
            (layer.gau.o_dense.weight, unit.self_attn.out_proj.weight),
            (layer.gau.q_scaleoffset.weight, unit.self_attn.q_scale),
            (layer.gau.k_scaleoffset.weight, unit.self_attn.k_scale),
        ]
    with torch.no_grad():
        for target, source in pairs:
            target.copy_(source)


PEERS: Dict[str, Callable[..., torch.nn.Module]] = {
    "hf-roformer": hf_roformer,
    "gau-alpha": gau_alpha,
}
