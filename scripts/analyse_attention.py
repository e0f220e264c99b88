#!/usr/bin/env python3
"""Rank and sparsity of a checkpoint's attention matrices, layer by layer.

    analyse_attention.py checkpoints/checkpoint_last.pt valid.bpe.txt
    analyse_attention.py checkpoints/checkpoint_last.pt valid.bpe.txt --output attention.png

What Table 3 of "Implementation and Experiments for GAU-based Model" (Liu, section 3.3) reports of
its GAU with keys of 128 channels, for any model of this plug-in, on any text:

    matrix              rank / 512    sparsity
    q·k                 0.25          ≈ 0
    softmax(q·k/√d)     0.9983        10.03 %
    ReLU²(q·k/√d)       0.989         12.49 %

The paper says neither when a singular value or an entry counts as zero, nor of which layers, texts
and checkpoint these figures are. Here, over all heads and sequences of a layer:

rank: the mean of torch.linalg.matrix_rank in float64, divided by the length. A singular value
    counts if it is above --tolerance times the largest one of its matrix. The default, length times
    the machine epsilon of float32 (6.1e-5 at 512 tokens), is what NumPy and PyTorch take for a
    matrix in float32, the precision that q and k are computed in.
sparsity: the share of entries that are, in magnitude, at most --threshold times the largest one in
    their row; all of a row without any other value than 0. The default, 1e-3, is the machine
    epsilon of float16: less than that is lost beside the largest entry.

The logits are the layer's own: where an encoding adds terms to q·k/√d (T5 bias, TUPE, ALiBi), they
are in the second and the third matrix, and TUPE's √(2d) stands for √d. Factors after that, such as
that of softmax_plus, are left out, whichever normaliser the model was trained with. Keys that
a causal masked LM hides count as zeros there.

Only encoders are analysed. Softmax in a decoder is triangular with a positive diagonal: in exact
arithmetic its rank is always full, and half of it is hidden.

TEXT is tokens as the training data has them, after BPE, in the source language of a translation
model. It is cut into sequences of --length tokens, each line ended by </s>, and for a masked LM
each sequence begun by <s>. Nothing is masked.
"""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import torch  # noqa: E402
from analyse_inputs import Model, load, pack  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import fairseq_posenc  # noqa: E402, F401
from fairseq_posenc.attention.functional import add_terms, additive_mask  # noqa: E402
from fairseq_posenc.attention.softmax import content_logits  # noqa: E402
from fairseq_posenc.encodings.base import Content  # noqa: E402
from fairseq_posenc.errors import UsageError  # noqa: E402
from fairseq_posenc.modules.stack import layer_positions  # noqa: E402

LENGTH = 512  # tokens, as in the paper, unless told or the model has fewer positions
SEQUENCES = 8
THRESHOLD = 1e-3
MATRICES = ("q·k", "softmax", "ReLU²")


class Figures(NamedTuple):
    """Rank / length and sparsity, (layers, 3) each."""

    rank: Tensor
    sparsity: Tensor


def attention_inputs(model: Model, tokens: Tensor) -> List[Tensor]:
    """What the attention of every layer is given, (T, B, C) each, for *tokens* (B, T)."""
    inputs: List[Tensor] = []

    def keep(_: nn.Module, given: Tuple[Tensor, ...]) -> None:
        inputs.append(given[0])

    hooks = [layer.self_attn.register_forward_pre_hook(keep) for layer in model.encoder.layers]
    try:
        model.run(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs


@torch.no_grad()
def matrices(model: Model, tokens: Tensor) -> Iterator[Tensor]:
    """q·k, softmax and ReLU² of every layer, (3, B, H, T, T) each, in float64.

    Args:
        model: the model.
        tokens: (B, T), without padding.
    """
    encoder, length = model.encoder, tokens.size(1)
    for layer, x in zip(encoder.layers, attention_inputs(model, tokens)):
        attention, causal = layer.self_attn, encoder.encoding.stack.causal
        given = layer_positions(layer, encoder.positions_of_layers(x, length, None, causal))
        q, k, _, content_q, content_k = attention.project(x, given.get("table"))[:5]
        added = given["bias"]
        if given["causal"]:
            added = add_terms(added, additive_mask(length, length, True, None, x))
        if attention.position_terms is not None:
            positions = (given["query_positions"], given["key_positions"])
            content = Content(x, content_q, content_k, layer.encoding.scale, *positions)
            vectors = given.get("distance_vectors")
            added = add_terms(added, content_logits(attention, content, vectors, None))
        products = torch.matmul(q.double(), k.double().transpose(-2, -1))
        logits = products * layer.encoding.scale
        logits = logits if added is None else logits + added
        yield torch.stack((products, logits.softmax(dim=-1), logits.relu().square()))


def rank_share(matrix: Tensor, tolerance: float) -> Tensor:
    """Numerical rank over size of matrices (…, T, T), by singular values above *tolerance*."""
    return torch.linalg.matrix_rank(matrix, rtol=tolerance) / matrix.size(-1)


def sparsity(matrix: Tensor, threshold: float) -> Tensor:
    """Share of entries of (…, T, T) that are at most *threshold* of the largest in their row."""
    magnitude = matrix.abs()
    small = magnitude <= threshold * magnitude.amax(dim=-1, keepdim=True)
    return small.double().mean(dim=(-2, -1))


def analyse(model: Model, tokens: Tensor, tolerance: float, threshold: float) -> Figures:
    """Figures of every layer, means over heads and over sequences *tokens* (B, T)."""
    ranks, shares = [], []
    for sequence in tokens.split(1):  # all matrices of a layer are in memory at once
        layers = [
            (rank_share(m, tolerance).mean(dim=(1, 2)), sparsity(m, threshold).mean(dim=(1, 2)))
            for m in matrices(model, sequence)
        ]
        ranks.append(torch.stack([rank for rank, _ in layers]))
        shares.append(torch.stack([share for _, share in layers]))
    return Figures(torch.stack(ranks).mean(dim=0), torch.stack(shares).mean(dim=0))


def table(figures: Figures) -> str:
    """The figures as text, layers below each other and their mean last."""
    width = 9 * len(MATRICES)
    lines = [f"{'':6}{'rank / length':>{width}}{'sparsity':>{width}}"]
    lines += [f"{'layer':6}" + "".join(f"{name:>9}" for name in 2 * MATRICES)]
    rows = list(zip(figures.rank, figures.sparsity))
    names = [str(number) for number in range(1, len(rows) + 1)] + ["mean"]
    for name, (rank, share) in zip(names, [*rows, (f.mean(dim=0) for f in figures)]):
        cells = [f"{x:9.4f}" for x in rank.tolist()] + [f"{x:9.2%}" for x in share.tolist()]
        lines.append(f"{name:6}" + "".join(cells))
    return "\n".join(lines)


def draw(figures: Figures, title: str, bound: float, output: Path) -> None:
    """Draw both figures over the layers into one PNG, which is complete or not there.

    Args:
        figures: what to draw.
        title: line above.
        bound: the largest rank / length that q·k can have.
        output: the file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.8), constrained_layout=True)
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    layers = range(1, len(figures.rank) + 1)
    for ax, values in zip((left, right), figures):
        for name, marker, curve in zip(MATRICES, "os^", values.t()):
            ax.plot(layers, curve.tolist(), marker + "-", label=name, markersize=4)
        ax.set_xlabel("layer", fontsize=9)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_ylim(-0.03, 1.03)
        ax.tick_params(labelsize=8)
        ax.grid(alpha=0.3)
    left.axhline(bound, color="C0", linestyle=":", linewidth=1, label="d / length")
    left.set_ylabel("rank / length", fontsize=9)
    right.set_ylabel("sparsity", fontsize=9)
    right.yaxis.set_major_formatter(PercentFormatter(1))
    left.legend(fontsize=8)
    partial_file = output.with_name(output.name + ".partial")
    figure.savefig(str(partial_file), format="png", dpi=120)
    pyplot.close(figure)
    os.replace(str(partial_file), str(output))


def check_length(length: int, model: Model) -> None:
    """Refuse a length that the model cannot take.

    Raises:
        UsageError: it cannot.
    """
    longest = model.encoder.encoding.stack.max_positions
    if length < 2:
        raise UsageError(f"--length {length}: expected 2 or more")
    if model.encoder.encoding.bounded and length > longest:
        raise UsageError(f"--length {length}: the table has {longest} positions")


def main(arguments: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint")
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--output", type=Path, metavar="PNG", help="draw the table, too")
    parser.add_argument("--dict", metavar="FILE", help="dict.txt, if it is not found")
    parser.add_argument("--length", type=int, help=f"tokens ({LENGTH}, or fewer)")
    parser.add_argument(
        "--sequences", type=int, default=SEQUENCES, help="at most this many (%(default)s)"
    )
    parser.add_argument(
        "--tolerance", type=float, help="least share of the largest singular value (see above)"
    )
    parser.add_argument(
        "--threshold", type=float, default=THRESHOLD, help="of sparsity (%(default)g)"
    )
    args = parser.parse_args(arguments)
    logging.disable(logging.INFO)  # fairseq turns every library's messages on
    for flag, value in (("tolerance", args.tolerance), ("threshold", args.threshold)):
        if value is not None and not 0 <= value < 1:
            raise UsageError(f"--{flag} {value:g}: expected at least 0 and less than 1")
    if args.sequences < 1:
        raise UsageError(f"--sequences {args.sequences}: expected 1 or more")
    model = load(args.checkpoint, args.dict)
    stack = model.encoder.encoding.stack
    length = min(LENGTH, stack.max_positions) if args.length is None else args.length
    check_length(length, model)
    tokens = pack(args.text, model, length, args.sequences)
    tolerance = args.tolerance
    if tolerance is None:
        tolerance = length * torch.finfo(torch.float32).eps
    figures = analyse(model, tokens, tolerance, args.threshold)
    bound = min(1.0, stack.head_dim / length)
    unknown = tokens.eq(model.dictionary.unk()).double().mean()
    title = (
        f"sequences: {len(tokens)}, tokens in each: {length}, unknown: {unknown:.1%}; "
        f"heads a layer: {stack.num_heads}, d: {stack.head_dim}, so rank of q·k at most "
        f"{bound:.4g} of the length\n"
        f"singular values above {tolerance:.2g} of the largest count for rank, "
        f"entries up to {args.threshold:g} of the largest in their row for sparsity"
    )
    print(f"{title}\n\n{table(figures)}")
    if args.output is None:
        return
    try:
        draw(figures, title, bound, args.output)
    except ImportError:
        raise UsageError("matplotlib is not installed; run: pip install matplotlib") from None
    except OSError as error:
        raise UsageError(f"--output {args.output}: {error.strerror}") from None


if __name__ == "__main__":
    main()
