"""Plots of a report as SVG files, by seaborn; no plot distinguishes systems by colour alone."""

from pathlib import Path
from typing import Any, Optional, Tuple

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from runs import Measure
from seeds import interval

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "fairseq_posenc"  # equal figures become equal files
FRONT, BACK, BASELINE = "#0072b2", "#bbbbbb", "#d55e00"


def save(figure: Any, path: Path) -> None:
    """Write a figure, and close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def dots(
    scores: pd.DataFrame, summary: pd.DataFrame, measure: Measure, baseline: str, path: Path
) -> None:
    """Plot the mean of each system with its 95 % interval by Student's t, and every seed.

    Args:
        scores: columns ``system``, ``seed`` and ``score``.
        summary: a row for each system, in the order of the plot's rows.
    """
    order = list(summary.index)
    figure, axes = plt.subplots(figsize=(7.5, 0.8 + 0.28 * len(order)))
    usual = {"data": scores, "x": "score", "y": "system", "order": order, "ax": axes}
    sns.stripplot(**usual, color=FRONT, marker="|", size=9, linewidth=1, jitter=False)
    sns.pointplot(
        **usual, color=FRONT, errorbar=interval, linestyle="none", err_kws={"linewidth": 1}
    )
    if baseline in summary.index:
        axes.axvline(summary.loc[baseline, "mean"], color=BASELINE, linestyle="--", linewidth=1)
    # cut intervals that are far wider than the scores
    values = scores.score.to_numpy()
    room = 0.15 * (np.ptp(values) or abs(values[0]) or 1)
    axes.set_xlim(values.min() - room, values.max() + room)
    axes.set(xlabel=f"{measure.label} {f'({measure.unit})' if measure.unit else ''}", ylabel="")
    save(figure, path)


def panels(
    data: pd.DataFrame,
    baseline: str,
    path: Path,
    label: str,
    scales: Tuple[str, str] = ("linear", "linear"),
    mark: Optional[float] = None,
    spread: Any = ("pi", 100),
) -> None:
    """Plot a panel per system: its mean and range over the seeds, in front of all other means.

    Args:
        data: columns ``system``, ``seed``, ``x`` and ``y``.
        label: the label of the x axis.
        mark: an x value to mark with a dotted line.
        spread: seaborn's ``errorbar``; by default the range over the seeds.
    """
    grid = sns.relplot(
        data=data, x="x", y="y", col="system", col_wrap=4, kind="line", height=1.7, aspect=1.2,
        errorbar=spread, color=FRONT, facet_kws={"sharey": True},
    )  # fmt: skip
    means = data.groupby(["system", "x"], sort=False).y.mean()
    ticks = sorted(data.x.unique())
    settled = data[data.x >= data.x.min() + 0.1 * (data.x.max() - data.x.min())].y
    far = settled.median() + 4 * (settled.quantile(0.75) - settled.quantile(0.25))
    for system, axes in grid.axes_dict.items():
        for other in means.index.unique("system"):
            if other != system:
                line = means[other].sort_index()
                how = (BASELINE, "--", 1.0) if other == baseline else (BACK, "-", 0.5)
                axes.plot(
                    line.index, line, color=how[0], linestyle=how[1], linewidth=how[2], zorder=1
                )
        if mark is not None:
            axes.axvline(mark, color="black", linestyle=":", linewidth=0.8)
        axes.set(xscale=scales[0], yscale=scales[1])
        if scales[0] == "log":  # there are few x values; label each
            axes.set_xticks(ticks, [f"{x:g}" for x in ticks], size=6)
            axes.set_xticks([], minor=True)
        if scales[1] == "log":
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:g}")
    if data.y.max() > far > data.y.min():  # cut curves that start or end far above
        grid.set(ylim=(None, far))
    grid.set_titles("{col_name}").set_axis_labels(label, "")
    save(grid.figure, path)


def heat_map(values: pd.DataFrame, path: Path) -> None:
    """Plot a heat map with a number in each cell; rows are tasks, columns systems."""
    size = (1.9 + 0.45 * len(values.columns), 1.3 + 0.3 * len(values))
    figure, axes = plt.subplots(figsize=size)
    sns.heatmap(
        values, annot=True, fmt=".2g", cmap="viridis", vmin=0, cbar=False, ax=axes,
        annot_kws={"size": 7}, linewidths=1,
    )  # fmt: skip
    axes.set(xlabel="", ylabel="")
    save(figure, path)
