#!/usr/bin/env python3
"""Plot what a checkpoint knows of positions.

    plot_positions.py checkpoints/checkpoint_last.pt positions.png
    plot_positions.py checkpoints/checkpoint_last.pt positions.png --length 512

Content-free logits (TUPE, T5 bias, ALiBi, the positional part of BERT-A^d) are drawn as one heat
map a head, query position down, key position across, as in TUPE Figure 5. The heads of a row share
one colour scale, from the 1st to the 99th percentile. Where several encodings are summed, or [CLS]
is reset, the sum is drawn last.

For rotary, the long-term decay of RoFormer Figure 2: the bound of Eq. 29 by relative distance, left
from the formula alone, 2/d Σ|S_i|; right with the weights of every layer, Σ|S_{i+1}||h_{i+1} - h_i|
as a share of its value at distance 0. There h_i is the expectation of q_i k_i* where both tokens
have the same input, of independent channels with unit variance, and heads are averaged.
"""

import argparse
import logging
import os
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import fairseq_posenc  # noqa: E402, F401
from fairseq_posenc.checkpoints.reading import read_checkpoint  # noqa: E402
from fairseq_posenc.config.fields import defaults_of  # noqa: E402
from fairseq_posenc.config.stacks import side_encoding  # noqa: E402
from fairseq_posenc.encodings import (  # noqa: E402
    PositionEncoding,
    Stack,
    build_encodings,
)
from fairseq_posenc.encodings.bert_ad import UntiedProjections  # noqa: E402
from fairseq_posenc.encodings.rotary import Rotary, frequencies  # noqa: E402
from fairseq_posenc.errors import UsageError  # noqa: E402
from fairseq_posenc.initialisation import remove_biases  # noqa: E402
from fairseq_posenc.loading.settings import saved_settings  # noqa: E402
from fairseq_posenc.models import FAMILIES, masked_lm  # noqa: E402
from fairseq_posenc.norms import apply_norms  # noqa: E402

HEADS_A_ROW = 6
LENGTH = 128  # positions drawn, unless told or the model has fewer
State = Dict[str, Tensor]


class Row(NamedTuple):
    """Heat maps of a few heads with one colour scale."""

    title: str
    maps: Tensor  # (heads, T, T)
    first_head: int
    columns: int  # of the widest row


class Decay(NamedTuple):
    """Bounds by relative distance."""

    title: str
    formula: Tensor  # (distances,)
    trained: Tensor  # (layers, distances)


class Side(NamedTuple):
    """One stack of a model: its parameters by fairseq's names without the prefix."""

    stack: Stack
    encoding: PositionEncoding
    state: State
    cfg: Namespace


def read_sides(path: str) -> List[Side]:
    """The stacks of a checkpoint, with their encodings.

    Raises:
        UsageError: if the file cannot be read or is of no model of this plug-in.
    """
    checkpoint = read_checkpoint(path)
    given, state = saved_settings(checkpoint), checkpoint["model"]
    if "position_encoding" not in given:
        raise UsageError(f"{path}: was not trained with this plug-in; it names no encoding")
    family = next(f for f in FAMILIES.values() if given.get("_name") in f.presets)
    is_masked_lm = family is masked_lm.MASKED_LM
    # flags may be younger than the checkpoint
    options = {**defaults_of(family.dataclass), **{n: v for n, v in given.items() if v is not None}}
    cfg = Namespace(**options)
    cfg.num_positions = cfg.num_positions or cfg.max_positions if is_masked_lm else None
    sides = []
    for stack in family.stacks(cfg):
        prefix = f"{stack.side}.sentence_encoder." if is_masked_lm else f"{stack.side}."
        own = {k[len(prefix) :]: v.float() for k, v in state.items() if k.startswith(prefix)}
        encodings = build_encodings(cfg, stack, side_encoding(cfg, stack.side))
        sides.append(Side(stack, next(iter(encodings.values())), own, cfg))
    return sides


def load(module: nn.Module, prefix: str, side: Side) -> None:
    """Fill a module of the encoding, under *prefix* in the stack, from the checkpoint."""
    apply_norms(module, side.cfg)
    remove_biases(module, side.cfg)
    own = {k[len(prefix) :]: v for k, v in side.state.items() if k.startswith(prefix)}
    module.load_state_dict(own)


def correlation(
    positions: UntiedProjections, scale: float, queries: Tensor, keys: Tensor
) -> Tensor:
    """The position-to-position part of BERT-A^d (TUPE section 4.3), (1, H, T, S)."""
    q, k = positions.table(queries)[0], positions.table(keys)[1]  # (T, 1, H, D), (S, 1, H, D)
    return scale * torch.einsum("tbhd,sbhd->bhts", q, k)


@torch.no_grad()
def heat_maps(side: Side, length: int) -> List[Row]:
    """Content-free logits of one stack: of every term, and of their sum where it differs.

    Args:
        side: the stack.
        length: positions drawn.
    """
    terms = side.encoding.shared_bias
    functions: Dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
    if terms is not None:
        load(terms, "position_bias.", side)
        functions.update(terms.items())
    if terms is not None and (len(functions) > 1 or terms.untie_cls):
        sum_of = " + ".join(functions)
        functions[f"{sum_of}, [CLS] untied" if terms.untie_cls else sum_of] = terms
    separate = side.encoding.transform
    if isinstance(separate, UntiedProjections):
        load(separate, "position_map.", side)
        functions["bert_ad"] = partial(correlation, separate, side.encoding.scale)
    rows = []
    positions = torch.arange(length).unsqueeze(0)
    for name, function in functions.items():
        maps = function(positions, positions)[0].expand(side.stack.num_heads, -1, -1)
        if side.stack.causal:
            maps = maps.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), torch.nan)
        for first, part in zip(range(0, len(maps), HEADS_A_ROW), maps.split(HEADS_A_ROW)):
            columns = min(len(maps), HEADS_A_ROW)
            rows.append(Row(f"{side.stack.side}: {name}", part, first, columns))
    return rows


def partial_sums(rotary: Rotary, length: int) -> Tensor:
    """|S_i| of RoFormer Eq. 28 for distances 0 … *length* - 1 and i = 1 … d/2."""
    distances = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    angles = distances * frequencies(rotary.dim, rotary.base, scaling=rotary.scaling)
    return torch.polar(torch.ones_like(angles), angles).cumsum(dim=1).abs()


def expected_products(side: Side, rotary: Rotary, layer: int) -> Tensor:
    """h_i of every head in one layer, (H, d/2), complex (RoFormer Eq. 27)."""
    pairs = []
    for name in ("q_proj", "k_proj"):
        attention = f"layers.{layer}.self_attn.{name}."
        weight, bias = side.state[attention + "weight"], side.state[attention + "bias"]
        rows = torch.cat((weight, bias.unsqueeze(1)), dim=1).double()  # a channel that is always 1
        rows = rows.view(side.stack.num_heads, side.stack.head_dim, -1)[:, : rotary.dim]
        if rotary.pairing == "half":
            pairs.append(torch.complex(*rows.chunk(2, dim=1)))
        else:
            pairs.append(torch.complex(rows[:, 0::2], rows[:, 1::2]))
    q, k = pairs
    return (q * k.conj()).sum(dim=-1)


def decay(side: Side, length: int) -> Optional[Decay]:
    """The bound of RoFormer Eq. 29, or None where no layer has a softmax of rotated q·k."""
    rotary, cfg = side.encoding.transform, side.cfg
    if not isinstance(rotary, Rotary) or cfg.attention != "softmax" or cfg.layer == "gated":
        return None
    sums = partial_sums(rotary, length)
    curves = []
    for layer in range(
        1 + max(int(k.split(".")[1]) for k in side.state if k.startswith("layers."))
    ):
        h = expected_products(side, rotary, layer)
        steps = torch.cat((h, torch.zeros_like(h[:, :1])), dim=1).diff(dim=1).abs()  # (H, d/2)
        bound = steps @ sums.t()  # (H, distances)
        curves.append((bound / bound[:, :1]).mean(dim=0))
    title = f"{side.stack.side}: rotary, d = {rotary.dim}, base {rotary.base:g}"
    return Decay(title, sums.mean(dim=1), torch.stack(curves))


def draw_row(figure: Any, row: Row) -> None:
    """One row of heat maps with its colour bar."""
    figure.suptitle(row.title, x=0.01, ha="left", fontsize=10)
    axes = figure.subplots(1, row.columns, squeeze=False, sharey=True)[0]
    # from the 1st to the 99th percentile, or a single extreme logit hides all others
    low, high = row.maps.flatten().nanquantile(torch.tensor([0.01, 0.99])).tolist()
    limits = {"vmin": low, "vmax": high}
    used = axes[: len(row.maps)]
    for head, (ax, values) in enumerate(zip(used, row.maps), row.first_head + 1):
        image = ax.imshow(values.numpy(), cmap="viridis", interpolation="nearest", **limits)
        ax.set_title(f"head {head}", fontsize=8)
        ax.tick_params(labelsize=7)
        ax.set_xlabel("key position", fontsize=7)
    for ax in axes[len(used) :]:
        ax.set_visible(False)
    used[0].set_ylabel("query position", fontsize=7)
    bar = figure.colorbar(image, ax=list(axes), fraction=0.02, pad=0.01, extend="both")
    bar.ax.tick_params(labelsize=7)
    bar.set_label("logit", fontsize=7)


def draw_decay(figure: Any, curves: Decay) -> None:
    """The bound from the formula, and with the weights of every layer."""
    figure.suptitle(curves.title, x=0.01, ha="left", fontsize=10)
    left, right = figure.subplots(1, 2)
    left.plot(curves.formula.numpy(), color="C0")
    left.set_ylabel("2/d Σ|S_i| (formula)", fontsize=8)
    colors = figure_colors(len(curves.trained))
    for layer, (curve, color) in enumerate(zip(curves.trained, colors), 1):
        right.plot(curve.numpy(), color=color, linewidth=1, label=f"layer {layer}")
    right.set_ylabel("share of distance 0 (trained)", fontsize=8)
    right.set_ylim(bottom=0)
    right.legend(fontsize=7, ncol=2 if len(colors) > 6 else 1, frameon=False)
    for ax in (left, right):
        ax.set_xlabel("relative distance in tokens", fontsize=8)
        ax.tick_params(labelsize=7)
        ax.grid(alpha=0.3)


def figure_colors(count: int) -> List[Any]:
    """Colours from the first layer, dark, to the last, light."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.9 * i / max(1, count - 1)) for i in range(count)]


def draw(parts: Sequence[Tuple[Callable[[Any, Any], None], Any]], output: Path) -> None:
    """Draw all parts below each other into one PNG, which is complete or not there."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    heights = [3.4 if function is draw_decay else 3.1 for function, _ in parts]
    columns = [row.columns for _, row in parts if hasattr(row, "columns")]
    width = max([2.2 * count + 1 for count in columns] + [8.0])
    figure = pyplot.figure(figsize=(width, sum(heights)), constrained_layout=True)
    for part, (function, values) in zip(
        figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0], parts
    ):
        function(part, values)
    partial = output.with_name(output.name + ".partial")
    figure.savefig(str(partial), format="png", dpi=110)
    pyplot.close(figure)
    os.replace(str(partial), str(output))


def main(arguments: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint")
    parser.add_argument("output", type=Path, metavar="PNG")
    parser.add_argument("--length", type=int, help=f"positions drawn ({LENGTH}, or fewer)")
    args = parser.parse_args(arguments)
    logging.disable(logging.INFO)  # fairseq lets matplotlib say which fonts it tries
    sides = read_sides(args.checkpoint)
    parts: List[Tuple[Callable[[Any, Any], None], Any]] = []
    for side in sides:
        longest = side.stack.max_positions
        length = args.length or min(LENGTH, longest)
        if length < 2:
            raise UsageError(f"--length {length}: expected 2 or more")
        if side.encoding.bounded and length > longest:
            raise UsageError(f"--length {length}: the table has {longest} positions")
        parts += [(draw_row, row) for row in heat_maps(side, length)]
        curves = decay(side, length)
        parts += [(draw_decay, curves)] if curves else []
    if not parts:
        raise UsageError(
            f"{args.checkpoint}: --position-encoding {sides[0].encoding.name} has neither "
            "content-free logits nor, with softmax in its layers, a rotation to draw"
        )
    try:
        draw(parts, args.output)
    except ImportError:
        raise UsageError("matplotlib is not installed; run: pip install matplotlib") from None
    except OSError as error:
        raise UsageError(f"{args.output}: {error.strerror}") from None


if __name__ == "__main__":
    main()
