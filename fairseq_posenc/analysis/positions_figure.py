"""Heat maps of content-free logits and learned tables, and the decay of rotary logits."""

from pathlib import Path
from typing import TYPE_CHECKING, List, Optional

import numpy as np

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
    Maps,
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


def draw_maps(figure: "SubFigure", row: Maps) -> None:
    """Draw matrices side by side, with one colour scale and a bar for it."""
    figure.suptitle(row.title, x=0.01, ha="left")
    axes = figure.subplots(1, row.columns, squeeze=False, sharey=True)[0]
    if row.first_head is None:
        limits, label = {"vmin": -1.0, "vmax": 1.0}, "cosine similarity, less the mean vector"
        across, down = "position (tokens)", "position (tokens)"
    else:
        # from the 1st to the 99th percentile, or a single extreme logit would hide all others
        low, high = np.nanquantile(row.maps.numpy(), [0.01, 0.99])  # PyTorch's takes 2^24 values
        limits, label = heat_limits(low, high), "logit"
        across, down = "key position (tokens)", "query position (tokens)"
    for number, (ax, values) in enumerate(zip(axes, row.maps), 1):
        image = ax.imshow(values.numpy(), cmap=HEAT, interpolation="nearest", **limits)
        ax.grid(False)
        ax.set_xlabel(across)
        if row.first_head is not None:
            ax.set_title(f"head {row.first_head + number}")
    axes[0].set_ylabel(down)
    for ax in axes[len(row.maps) :]:
        ax.set_visible(False)
    figure.colorbar(image, ax=list(axes), fraction=0.02, pad=0.01, extend="both", label=label)


def draw_decay(figure: "SubFigure", curves: Decay) -> None:
    """Draw the bound, from the formula alone and with the weights of each layer."""
    from matplotlib import colormaps

    figure.suptitle(curves.title, x=0.01, ha="left")
    left, right = figure.subplots(1, 2)
    left.plot(curves.formula.numpy(), color=COLORS[0])
    left.set_ylabel("2/d Σ|S_i| (formula)")
    # from dark, the first layer, to light, the last
    colors = [colormaps[HEAT](shade) for shade in np.linspace(0, 0.7, len(curves.trained))]
    for number, (layer, curve) in enumerate(zip(curves.layers, curves.trained)):
        dash = DASHES[number % len(DASHES)]
        right.plot(curve.numpy(), dash, color=colors[number], label=f"layer {layer + 1}")
    right.set_ylabel("relative to distance 0 (trained)")
    right.set_ylim(bottom=0)
    right.legend(ncol=2 if len(colors) > 6 else 1)
    for ax in (left, right):
        ax.set_xlabel("relative distance (tokens)")


def draw(maps: List[Maps], decays: List[Decay], output: Path) -> None:
    """Draw all parts below each other in one figure."""
    pyplot = import_pyplot("OUTPUT")
    heights = [3.1] * len(maps) + [3.4] * len(decays)
    width = max([2.2 * row.columns + 1 for row in maps] + [8.0])
    figure = pyplot.figure(figsize=(width, sum(heights)), constrained_layout=True)
    parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, row in zip(parts, maps):
        draw_maps(part, row)
    for part, curves in zip(parts[len(maps) :], decays):
        draw_decay(part, curves)
    save_figure(figure, output, flag="")


def plot(checkpoint: str, output: Path, length: Optional[int], default_length: int) -> None:
    """Draw what a checkpoint learned about positions.

    Args:
        default_length: the number if *length* is None; fewer if the model has fewer.

    Raises:
        UsageError: the checkpoint cannot be read, or has nothing to draw.
    """
    sides, maps, decays = read_sides(checkpoint), [], []
    for side in sides:
        drawn = chosen_length(length, default_length, side.encoding)
        for of_side in (learned_table, heat_maps, layer_terms):
            maps += of_side(side, drawn)
        curves = decay(side, drawn)
        decays += [curves] if curves else []
    if not maps and not decays:
        raise UsageError(
            f"{checkpoint}: --position-encoding {sides[0].encoding.name} has no learned table, no "
            "logits from positions alone and, with softmax in its layers, no rotation to draw"
        )
    draw(maps, decays, output)
