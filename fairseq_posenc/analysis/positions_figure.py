"""Heat maps of content-free logits and learned tables, and the decay of rotary logits."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple

import numpy as np

from fairseq_posenc.analysis.figures import (
    COLORS,
    DASHES,
    HEAT,
    heat_limits,
    import_pyplot,
    save_figure,
)
from fairseq_posenc.analysis.learned_positions import Table, layer_terms, learned_table
from fairseq_posenc.analysis.positions import Decay, Row, decay, heat_maps, read_sides
from fairseq_posenc.basics.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure


class NothingToDraw(UsageError):
    """A model without a learned table, logits that depend on positions alone, and a rotation."""


def draw_row(figure: "SubFigure", row: Row) -> None:
    """Draw a row of heat maps with its colour bar."""
    figure.suptitle(row.title, x=0.01, ha="left", fontsize=10)
    axes = figure.subplots(1, row.columns, squeeze=False, sharey=True)[0]
    # from the 1st to the 99th percentile, or a single extreme logit would hide all others
    low, high = np.nanquantile(row.maps.numpy(), [0.01, 0.99])  # PyTorch's takes 2^24 values
    used = axes[: len(row.maps)]
    for head, (ax, values) in enumerate(zip(used, row.maps), row.first_head + 1):
        image = ax.imshow(
            values.numpy(), cmap=HEAT, interpolation="nearest", **heat_limits(low, high)
        )
        ax.set_title(f"head {head}", fontsize=8)
        ax.tick_params(labelsize=7)
        ax.set_xlabel("key position (tokens)", fontsize=7)
        ax.grid(False)
    for ax in axes[len(used) :]:
        ax.set_visible(False)
    used[0].set_ylabel("query position (tokens)", fontsize=7)
    bar = figure.colorbar(image, ax=list(axes), fraction=0.02, pad=0.01, extend="both")
    bar.ax.tick_params(labelsize=7)
    bar.set_label("logit", fontsize=7)


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


def draw_table(figure: "SubFigure", table: Table) -> None:
    """Draw the similarities of a table as a heat map with its colour bar."""
    figure.suptitle(table.title, x=0.01, ha="left", fontsize=10)
    axes, right = figure.subplots(1, 2)
    right.set_visible(False)
    values = table.similarities.numpy()
    image = axes.imshow(values, cmap=HEAT, interpolation="nearest", vmin=-1, vmax=1)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("position (tokens)", fontsize=7)
    axes.set_ylabel("position (tokens)", fontsize=7)
    axes.grid(False)
    bar = figure.colorbar(image, ax=axes, fraction=0.02, pad=0.01)
    bar.ax.tick_params(labelsize=7)
    bar.set_label("cosine similarity, less the mean vector", fontsize=7)


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
        checkpoint: the checkpoint file.
        output: the file of the figure.
        length: number of positions.
        default_length: the number if *length* is None; fewer if the model has fewer.

    Raises:
        UsageError: the checkpoint cannot be read, or has nothing to draw at this length.
        NothingToDraw: the encoding has nothing to draw at any length.
    """
    sides = read_sides(checkpoint)
    parts: List[Tuple[Callable[[Any, Any], None], Any]] = []
    for side in sides:
        longest = side.stack.max_positions
        drawn = min(default_length, longest) if length is None else length
        if drawn < 2:
            raise UsageError(f"--length {drawn}: expected 2 or more")
        if side.encoding.bounded and drawn > longest:
            raise UsageError(f"--length {drawn}: the table has {longest} positions")
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
