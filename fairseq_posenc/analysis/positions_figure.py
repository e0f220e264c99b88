"""Heat maps of content-free logits and learned tables, and the decay of rotary logits."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple

import numpy as np
from torch import Tensor

from fairseq_posenc.analysis.figures import (
    COLORS,
    DASHES,
    HEAT,
    heat_limits,
    import_pyplot,
    save_figure,
)
from fairseq_posenc.analysis.positions import (
    Decay,
    Row,
    Table,
    chosen_length,
    decay,
    heat_maps,
    layer_terms,
    learned_table,
    read_sides,
)
from fairseq_posenc.basics.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure


class NothingToDraw(UsageError):
    """A model has no learned table, no logits from positions alone, and no rotation."""


def draw_maps(
    figure: "SubFigure", title: str, maps: Tensor, columns: int, label: str, **scale: Any
) -> Any:
    """Draw matrices side by side with one scale and a bar for it.

    Args:
        maps: (N, T, S).
        columns: places for matrices, at least N.
        label: what the colours stand for.
        scale: the limits of the colours, as arguments of ``imshow``.

    Returns:
        the N axes.
    """
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    axes = figure.subplots(1, columns, squeeze=False, sharey=True)[0]
    for ax, values in zip(axes, maps):
        image = ax.imshow(values.numpy(), cmap=HEAT, interpolation="nearest", **scale)
        ax.tick_params(labelsize=7)
        ax.grid(False)
    for ax in axes[len(maps) :]:
        ax.set_visible(False)
    bar = figure.colorbar(image, ax=list(axes), fraction=0.02, pad=0.01, extend="both")
    bar.ax.tick_params(labelsize=7)
    bar.set_label(label, fontsize=7)
    return axes[: len(maps)]


def draw_row(figure: "SubFigure", row: Row) -> None:
    """Draw the heat maps of a few heads."""
    # from the 1st to the 99th percentile, or a single extreme logit would hide all others
    low, high = np.nanquantile(row.maps.numpy(), [0.01, 0.99])  # PyTorch's takes 2^24 values
    limits = heat_limits(low, high)
    axes = draw_maps(figure, row.title, row.maps, row.columns, "logit", **limits)
    for head, ax in enumerate(axes, row.first_head + 1):
        ax.set_title(f"head {head}", fontsize=8)
        ax.set_xlabel("key position (tokens)", fontsize=7)
    axes[0].set_ylabel("query position (tokens)", fontsize=7)


def draw_table(figure: "SubFigure", table: Table) -> None:
    """Draw the similarities of a learned table."""
    label, maps = "cosine similarity, less the mean vector", table.similarities[None]
    (ax,) = draw_maps(figure, table.title, maps, 2, label, vmin=-1, vmax=1)
    ax.set_xlabel("position (tokens)", fontsize=7)
    ax.set_ylabel("position (tokens)", fontsize=7)


def draw_decay(figure: "SubFigure", curves: Decay) -> None:
    """Draw the bound, from the formula alone and with the weights of each layer."""
    figure.suptitle(curves.title, x=0.01, ha="left", fontsize=10)
    left, right = figure.subplots(1, 2)
    left.plot(curves.formula.numpy(), color=COLORS[0])
    left.set_ylabel("2/d Σ|S_i| (formula)", fontsize=8)
    colors = layer_colors(len(curves.trained))
    for number, (layer, curve) in enumerate(zip(curves.layers, curves.trained)):
        dash = DASHES[number % len(DASHES)]
        right.plot(curve.numpy(), dash, color=colors[number], label=f"layer {layer + 1}")
    right.set_ylabel("relative to distance 0 (trained)", fontsize=8)
    right.set_ylim(bottom=0)
    right.legend(fontsize=7, ncol=2 if len(colors) > 6 else 1, frameon=False)
    for ax in (left, right):
        ax.set_xlabel("relative distance (tokens)", fontsize=8)
        ax.tick_params(labelsize=7)


def layer_colors(count: int) -> List[Any]:
    """Colours from dark, the first layer, to light, the last."""
    from matplotlib import colormaps

    return [colormaps[HEAT](0.7 * i / max(1, count - 1)) for i in range(count)]


def draw(parts: Sequence[Tuple[Callable[[Any, Any], None], Any]], output: Path) -> None:
    """Draw all parts below each other in one figure."""
    pyplot = import_pyplot("OUTPUT")
    heights = [3.4 if function is draw_decay else 3.1 for function, _ in parts]
    columns = [row.columns for _, row in parts if hasattr(row, "columns")]
    width = max([2.2 * count + 1 for count in columns] + [8.0])
    figure = pyplot.figure(figsize=(width, sum(heights)), constrained_layout=True)
    for part, (function, values) in zip(
        figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0], parts
    ):
        function(part, values)
    save_figure(figure, output, flag="")


def plot(checkpoint: str, output: Path, length: Optional[int], default_length: int) -> None:
    """Draw what a checkpoint learned about positions.

    Args:
        default_length: the number if *length* is None; fewer if the model has fewer.

    Raises:
        UsageError: the checkpoint cannot be read, or has nothing to draw at this length.
        NothingToDraw: the encoding has nothing to draw at any length.
    """
    sides = read_sides(checkpoint)
    parts: List[Tuple[Callable[[Any, Any], None], Any]] = []
    for side in sides:
        drawn = chosen_length(length, default_length, side.encoding)
        table = learned_table(side, drawn)
        parts += [(draw_table, table)] if table else []
        parts += [(draw_row, row) for row in (*heat_maps(side, drawn), *layer_terms(side, drawn))]
        curves = decay(side, drawn)
        parts += [(draw_decay, curves)] if curves else []
    if not parts:
        raise NothingToDraw(
            f"{checkpoint}: --position-encoding {sides[0].encoding.name} has no learned table, no "
            "logits from positions alone and, with softmax in its layers, no rotation to draw"
        )
    draw(parts, output)
