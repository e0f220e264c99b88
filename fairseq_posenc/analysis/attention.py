"""Rank and sparsity of a checkpoint's attention matrices, layer by layer.

`fairseq-posenc analyse --help` defines both terms. Table 3 of "Implementation and Experiments for
GAU-based Model" (Liu, section 3.3) has, for a GAU with 128-channel keys at 512 tokens:

    matrix              rank / 512    sparsity
    q·k                 0.25          ≈ 0
    softmax(q·k/√d)     0.9983        10.03 %
    ReLU²(q·k/√d)       0.989         12.49 %

Decoders are not analysed: the matrix of a causal softmax is lower triangular with a positive
diagonal, so it always has full rank, and half of its entries are masked. All entries of a row of
zeros count as sparse, and so do the masked keys of a causal masked language model.
"""

import contextlib
from argparse import Namespace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Iterator, List, NamedTuple, Optional

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.analysis.figures import check_figure, curve_style, import_pyplot, save_figure
from fairseq_posenc.analysis.positions import chosen_length, read_model
from fairseq_posenc.attention import Batch, Padding
from fairseq_posenc.attention.functional import additive_mask
from fairseq_posenc.attention.grouped import repeat_heads
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.checkpoints.loader import BareTask, find_dictionary, read_dictionary, rebuild
from fairseq_posenc.flags.registry import replacements_in
from fairseq_posenc.stacks.encoder import TransformerEncoder

LENGTH = 512  # tokens, as in the paper; fewer if the model has fewer positions
MATRICES = ("q·k", "softmax", "ReLU²")


class Model(NamedTuple):
    """An encoder, a function that runs it on tokens (B, T), and its dictionary."""

    encoder: TransformerEncoder
    run: Callable[[Tensor], Any]
    dictionary: Dictionary


#: The fairseq task of a model, keyed by the name of its encoder in the state dict.
TASKS = {"encoder.sentence_encoder": "masked_lm", "encoder": "translation"}


def load(path: str, dict_path: Optional[str]) -> Model:
    """Load the encoder of a checkpoint in evaluation mode.

    Args:
        dict_path: the dictionary, needed if none is beside the checkpoint or in its training data.
    """
    checkpoint, settings, _, _ = read_model(path)
    state = checkpoint["model"]
    attention = settings.get("attention", "softmax")
    if attention != "softmax":
        raise UsageError(f"{path}: --attention {attention} has no matrices; give a softmax model")
    for each in replacements_in(Namespace(**settings)):
        if each.no_matrix:
            raise UsageError(f"{path}: {flag_of(each.flag)}: {each.no_matrix}")
    name = next((name for name in TASKS if f"{name}.embed_tokens.weight" in state), None)
    if name is None:
        raise UsageError(
            f"{path}: has no single encoder (its first parameter is {next(iter(state))}); give a "
            "checkpoint of a masked language model, or of a translation model for one language pair"
        )
    rows = len(state[f"{name}.embed_tokens.weight"])
    dict_path = dict_path or find_dictionary(path, checkpoint, "--dict")
    dictionary = read_dictionary(dict_path, adds_mask=False)
    size = len(dictionary)
    if size == rows - 1:  # tasks with masked tokens append it
        dictionary.add_symbol("<mask>")
    if len(dictionary) != rows:
        raise UsageError(
            f"{dict_path}: has {size} symbols, including those of fairseq, but {path} has {rows} "
            "token embeddings; give the model's own dictionary with --dict"
        )
    target: Optional[Dictionary] = None
    if name == "encoder" and not settings.get("share_all_embeddings"):
        target = Dictionary()  # placeholders: only the number of symbols is known
        for number in range(len(target), len(state["decoder.embed_tokens.weight"])):
            target.add_symbol(f"symbol {number}")
    task = BareTask(Namespace(_name=TASKS[name]), dictionary, target)
    model = rebuild(path, checkpoint, task)
    if name == "encoder":
        return Model(model.encoder, model.encoder, dictionary)
    return Model(model.encoder.sentence_encoder, partial(model, features_only=True), dictionary)


def pack(path: str, model: Model, length: int, count: int) -> Tensor:
    """Tokens (count, T) of the first *count* sequences of a text, or fewer if the text is short."""
    dictionary = model.dictionary
    start = [dictionary.bos()] if model.encoder.encoding.stack.has_cls else []
    body = length - len(start)
    numbers = (
        number
        for line in read_lines(path)
        for number in dictionary.encode_line(line, add_if_not_exist=False).tolist()
    )
    tokens = list(islice(numbers, body * count))
    if len(tokens) < body:
        raise UsageError(
            f"{path}: has {len(tokens)} tokens, including ends of lines, but one sequence needs "
            f"{body}; give more text, or a --length below {length}"
        )
    unknown = tokens.count(dictionary.unk()) / len(tokens)
    if unknown > 0.5:
        raise UsageError(
            f"{path}: {unknown:.0%} of its tokens are not in the dictionary; give a text that "
            "was split like the training data, or the model's own dictionary with --dict"
        )
    whole = len(tokens) // body
    return torch.tensor([start + tokens[i * body : (i + 1) * body] for i in range(whole)])


class Figures(NamedTuple):
    """Rank / length and sparsity of the three matrices of each layer, (layers, 3) each."""

    rank: Tensor
    sparsity: Tensor


@torch.no_grad()
def matrices(model: Model, tokens: Tensor) -> Iterator[Tensor]:
    """Yield q·k, softmax and ReLU² of each layer, stacked in a tensor (3, B, H, T, T), float64.

    Args:
        tokens: (B, T), without padding.
    """
    encoder, length = model.encoder, tokens.size(1)
    layers: Any = encoder.layers
    inputs: List[Tensor] = []  # the input of each layer's attention, (B, T, C)
    with contextlib.ExitStack() as hooks:
        for layer in layers:
            hooks.enter_context(
                layer.self_attn.register_forward_pre_hook(lambda _, x: inputs.append(x[0]))
            )
        model.run(tokens)
    for layer, x in zip(layers, inputs):
        assigned = encoder.assigned(Padding(), tokens)
        places = None if assigned is None else assigned.places
        batch = Batch(x, length, causal=encoder.encoding.stack.causal, assigned=places)
        prepared = encoder.prepare(batch)[layer.self_attn.kind]
        attention = layer.self_attn
        heads = attention.extended(attention.project(x, prepared), x, None)
        # "factor": None leaves out the factor that depends on the length
        q, scale, bias, _ = attention.logits(x, heads, {**prepared, "factor": None})
        if prepared["causal"]:  # then there is no bias
            bias = additive_mask(length, length, True, None, x)
        keys = repeat_heads(heads.k, q.size(1)).double()
        products = torch.matmul(q.double(), keys.transpose(-2, -1))
        logits = products * scale if bias is None else products * scale + bias
        yield torch.stack((products, logits.softmax(dim=-1), logits.relu().square()))


def rank_share(matrix: Tensor, tolerance: float) -> Tensor:
    """Rank / T of matrices (…, T, T), by singular values above *tolerance* times the largest."""
    return torch.linalg.matrix_rank(matrix, rtol=tolerance) / matrix.size(-1)


def sparsity(matrix: Tensor, threshold: float) -> Tensor:
    """Share of entries of (…, T, T) that are at most *threshold* times the largest in their row."""
    magnitude = matrix.abs()
    small = magnitude <= threshold * magnitude.amax(dim=-1, keepdim=True)
    return small.double().mean(dim=(-2, -1))


def analyse(model: Model, tokens: Tensor, tolerance: float, threshold: float) -> Figures:
    """Rank and sparsity of each layer, averaged over heads and the sequences *tokens* (B, T)."""
    every = [
        torch.stack((rank_share(m, tolerance), sparsity(m, threshold))).mean(dim=(2, 3))
        for sequence in tokens.split(1)  # one at a time, to save memory
        for m in matrices(model, sequence)
    ]
    return Figures(*torch.stack(every).view(len(tokens), -1, 2, 3).mean(dim=0).transpose(0, 1))


def table(figures: Figures) -> str:
    """The numbers as text: one line per layer, and last the mean over the layers."""
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
    """Plot rank and sparsity against the layer; *bound* is the largest possible rank / T of q·k."""
    pyplot = import_pyplot("--output")
    from matplotlib import ticker

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.8), constrained_layout=True)
    figure.suptitle(title, x=0.01, ha="left")
    layers = range(1, len(figures.rank) + 1)
    for ax, values in zip((left, right), figures):
        for number, (name, curve) in enumerate(zip(MATRICES, values.t())):
            ax.plot(layers, curve.tolist(), **curve_style(number), label=name)
        ax.set(xlabel="layer", ylim=(-0.03, 1.03))
        ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    left.axhline(bound, color="grey", linestyle=":", linewidth=1, label="d / length")
    left.set_ylabel("rank / length")
    right.set_ylabel("sparsity (entries that count as 0)")
    right.yaxis.set_major_formatter(ticker.PercentFormatter(1))
    left.legend()
    save_figure(figure, output)


def report(args: Namespace) -> None:
    """Print rank and sparsity of a checkpoint's attention on a text and, if asked, plot them."""
    if args.output is not None:
        check_figure(args.output, "--output")
    model = load(args.checkpoint, args.dict)
    stack = model.encoder.encoding.stack
    length = chosen_length(args.length, LENGTH, model.encoder.encoding)
    tokens = pack(args.text, model, length, args.sequences)
    tolerance = args.tolerance
    tolerance = length * torch.finfo(torch.float32).eps if tolerance is None else tolerance
    figures = analyse(model, tokens, tolerance, args.threshold)
    bound = min(1.0, stack.head_dim / length)
    unknown = tokens.eq(model.dictionary.unk()).double().mean()
    title = (
        f"sequences: {len(tokens)}, tokens in each: {length}, unknown: {unknown:.1%}; "
        f"heads per layer: {stack.num_heads}, d: {stack.head_dim}, so the rank of q·k is at most "
        f"{bound:.4g} of the length\n"
        f"rank counts singular values above {tolerance:.2g} of the largest; "
        f"sparsity counts entries up to {args.threshold:g} of the largest in their row"
    )
    print(f"{title}\n\n{table(figures)}")
    if args.output is not None:
        draw(figures, title, bound, args.output)
