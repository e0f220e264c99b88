"""Plots of the learned or computed positions of a checkpoint.

Learned tables and content-free logits are drawn as heat maps, rotary's long-term decay as curves.
"""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_posenc.analysis.figures import (
    COLORS,
    DASHES,
    HEAT,
    heat_limits,
    import_pyplot,
    save_figure,
)
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.settings import is_ours
from fairseq_posenc.configuration.features import side_encoding
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.encodings import PositionEncoding, Stack, build_encodings, parse
from fairseq_posenc.encodings.base import Places, Rotation
from fairseq_posenc.encodings.content import Content
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.settings import check_value
from fairseq_posenc.layers.parameters import apply_norms_and_biases
from fairseq_posenc.models import family_of, masked_lm
from fairseq_posenc.models.kinds import Trained, read_trained

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

HEADS_A_ROW = 6
FIRST = 2  # a table's row for the first position; fairseq's index of padding is 1
State = Dict[str, Tensor]


class Maps(NamedTuple):
    """Heat maps with one colour scale: one map for each of a few heads, or a table's only map."""

    title: str
    maps: Tensor  # (N, T, T)
    columns: int  # columns of the grid, which the maps need not fill
    first_head: Optional[int] = None  # index of the first map's head; None for a learned table


class Decay(NamedTuple):
    """The bound of RoFormer Eq. 29 against the relative distance."""

    title: str
    formula: Tensor  # 2/d Σ|S_i|, (distances,)
    trained: Tensor  # with the weights of each layer, (layers, distances)
    layers: List[int]  # indices of the layers


class Side(NamedTuple):
    """The layers of an encoder or decoder that have the same encoding."""

    stack: Stack  # the encoder or decoder
    encoding: PositionEncoding  # the encoding of these layers
    layers: List[int]  # the indices of these layers
    state: State  # the whole stack's parameters, under fairseq's names without the prefix
    cfg: Namespace  # the model's configuration


def read_model(path: str) -> Trained:
    """Read the checkpoint of a whole model; refuse models that are not of this plug-in."""
    trained = read_trained(path)
    if not is_ours(trained.settings):
        raise UsageError(f"{path}: was not trained with this plug-in; give a checkpoint that was")
    return trained


def under(prefix: str, state: State) -> State:
    """The parameters whose names begin with *prefix*, keyed by the rest of their names."""
    return {name[len(prefix) :]: x for name, x in state.items() if name.startswith(prefix)}


def read_sides(path: str) -> List[Side]:
    """One :class:`Side` for each encoding of the encoder and for each encoding of the decoder."""
    checkpoint, given, arch, _ = read_model(path)
    family = family_of(arch)
    if family is None:
        raise UsageError(
            f"{path}: was trained with --arch {arch}, which is not registered; give the "
            "--user-dir that registers it"
        )
    is_masked_lm = family is masked_lm.MASKED_LM
    # the checkpoint may be older than some of the flags
    options = {**defaults_of(family.dataclass), **{n: v for n, v in given.items() if v is not None}}
    cfg = Namespace(**options)
    cfg.num_positions = cfg.num_positions or cfg.max_positions if is_masked_lm else None
    sides = []
    for stack in family.stacks(cfg):
        prefix = f"{stack.side}.sentence_encoder." if is_masked_lm else f"{stack.side}."
        own = {name: x.float() for name, x in under(prefix, checkpoint["model"]).items()}
        count = 1 + max([int(name.split(".")[0]) for name in under("layers.", own)], default=-1)
        pattern = side_encoding(cfg, stack.side)
        names = parse(pattern).period
        for name, encoding in build_encodings(cfg, stack, pattern).items():
            layers = [n for n in range(count) if names[n % len(names)] == name]
            if layers:  # a pattern may be longer than the stack
                sides.append(Side(stack, encoding, layers, own, cfg))
    return sides


def chosen_length(given: Optional[int], default: int, encoding: PositionEncoding) -> int:
    """The value of ``--length``; by default, *default*, or the model's maximum if it is smaller."""
    longest = encoding.stack.max_positions
    length = min(default, longest) if given is None else given
    check_value("length", length, {"at_least": 2})
    if encoding.bounded and length > longest:
        raise UsageError(f"--length {length}: the table has {longest} positions; give at most that")
    return length


def load(module: nn.Module, state: State, side: Side) -> None:
    """Load parameters of a checkpoint into a module of an encoding."""
    apply_norms_and_biases(module, side.cfg)
    module.load_state_dict(state)


@torch.no_grad()
def heat_maps(side: Side, length: int) -> List[Maps]:
    """Heat maps of content-free logits: each term and, if there are several terms, their sum."""
    for name, module in side.encoding.modules.items():
        if module is not None:
            load(module, under(f"{name}.", side.state), side)
    rows = []
    every = side.encoding.without_content(torch.arange(length).unsqueeze(0))
    for name, logits in every.items():
        maps = logits[0].expand(side.stack.num_heads, -1, -1)
        rows += rows_of(f"{side.stack.side}: {name}", maps, side.stack)
    return rows


def learned_table(side: Side, length: int) -> List[Maps]:
    """Cosine similarities of a learned table's centred vectors; an empty list without a table."""
    table = side.state.get("embed_positions.weight")
    if table is None:
        return []
    vectors = table[FIRST : FIRST + length]
    vectors = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=1)
    return [Maps(f"{side.stack.side}: learned table", (vectors @ vectors.t())[None], 2)]


@torch.no_grad()
def layer_terms(side: Side, length: int) -> List[Maps]:
    """Logits of the first and the last layer, computed with queries and keys of zeros.

    For Transformer-XL, the term v·(r W_kR) remains; its terms that depend on content are 0.
    """
    stack, encoding = side.stack, side.encoding
    terms: Any = encoding.build_content_bias()
    if terms is None:
        return []
    zeros = torch.zeros(1, stack.num_heads, length, stack.head_dim)
    x = torch.zeros(1, length, stack.width)
    positions = torch.arange(length).unsqueeze(0)
    places = Places(positions, positions, length, by_index=True)
    rows: List[Maps] = []
    for layer in dict.fromkeys((side.layers[0], side.layers[-1])):
        state = under(f"layers.{layer}.", side.state).items()
        names = terms.state_dict()
        load(terms, {n: x for n in names for k, x in state if k.endswith(f".{n}")}, side)
        states = terms.key_states(x)
        content = Content(x, zeros, zeros, encoding.scale, places, key_states=states)
        (maps,) = terms(content, encoding.distance_vectors(places, zeros), {})
        if maps.any():
            title = f"{stack.side}, layer {layer + 1}: {encoding.name} without content"
            rows += rows_of(title, maps, stack)
    return rows


def rows_of(title: str, maps: Tensor, stack: Stack) -> List[Maps]:
    """Heat maps of logits (H, T, T), a few heads per row; causal stacks leave later keys blank."""
    if stack.causal:
        later = torch.ones(maps.shape[1:], dtype=torch.bool).triu(1)
        maps = maps.masked_fill(later, torch.nan)
    columns = min(len(maps), HEADS_A_ROW)
    parts = zip(range(0, len(maps), HEADS_A_ROW), maps.split(HEADS_A_ROW))
    return [Maps(title, part, columns, first) for first, part in parts]


def partial_sums(frequencies: Tensor, length: int) -> Tensor:
    """|S_i| of RoFormer Eq. 28 for distances 0 … *length* - 1 and i = 1 … d/2."""
    distances = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    angles = distances * frequencies
    return torch.polar(torch.ones_like(angles), angles).cumsum(dim=1).abs()


def expected_products(side: Side, rotation: Rotation, layer: int) -> Tensor:
    """h_i of every head in one layer, (H, d/2), complex (RoFormer Eq. 27)."""
    pairs = []
    for name in ("q_proj", "k_proj"):
        attention = f"layers.{layer}.self_attn.{name}."
        weight = side.state[attention + "weight"]
        bias = side.state.get(attention + "bias", weight.new_zeros(len(weight)))  # --no-bias
        # the bias is the weight of an extra input channel that is always 1
        rows = torch.cat((weight, bias.unsqueeze(1)), dim=1).double()
        rows = rows.view(-1, side.stack.head_dim, rows.size(1))  # (H or G, D, C + 1)
        rows = rows[:, : 2 * len(rotation.frequencies)]
        rows = rows.repeat_interleave(side.stack.num_heads // len(rows), dim=0)  # --kv-heads
        if rotation.pairing == "half":
            pairs.append(torch.complex(*rows.chunk(2, dim=1)))
        else:
            pairs.append(torch.complex(rows[:, 0::2], rows[:, 1::2]))
    q, k = pairs
    return (q * k.conj()).sum(dim=-1)


def decay(side: Side, length: int) -> Optional[Decay]:
    """The bound of RoFormer Eq. 29, or None if no layer applies softmax to rotated q·k.

    Normalised queries and keys (``--qk-norm``) have no such bound.
    """
    cfg = side.cfg
    if cfg.attention != "softmax" or cfg.layer == "gated" or option(cfg, "qk_norm"):
        return None
    every = [(layer, side.encoding.rotation(layer)) for layer in side.layers]
    rotated = [(layer, rotation) for layer, rotation in every if rotation is not None]
    if not rotated:
        return None
    sums = {each.base: partial_sums(each.frequencies, length) for _, each in rotated}
    curves = []
    for layer, rotation in rotated:
        h = expected_products(side, rotation, layer)
        steps = torch.cat((h, torch.zeros_like(h[:, :1])), dim=1).diff(dim=1).abs()  # (H, d/2)
        bound = steps @ sums[rotation.base].t()  # (H, distances)
        curves.append((bound / bound[:, :1]).mean(dim=0))
    base = ", ".join(f"{base:g}" for base in sums)
    title = f"{side.stack.side}: rotary, d = {2 * len(rotation.frequencies)}, base {base}"
    formula = next(iter(sums.values())).mean(dim=1)
    return Decay(title, formula, torch.stack(curves), [layer for layer, _ in rotated])


def draw_maps(figure: "SubFigure", row: Maps) -> None:
    """Draw matrices side by side, with one colour scale and one colour bar."""
    figure.suptitle(row.title, x=0.01, ha="left")
    axes = figure.subplots(1, row.columns, squeeze=False, sharey=True)[0]
    if row.first_head is None:
        limits, label = {"vmin": -1.0, "vmax": 1.0}, "cosine similarity of centred vectors"
        across, down = "position (tokens)", "position (tokens)"
    else:
        # from the 1st to the 99th percentile: one extreme logit must not hide all other differences
        low, high = np.nanquantile(row.maps.numpy(), [0.01, 0.99])  # torch's limit: 2^24 values
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
    """Draw the bound twice: from the formula alone, and with the weights of each layer."""
    from matplotlib import colormaps

    figure.suptitle(curves.title, x=0.01, ha="left")
    left, right = figure.subplots(1, 2)
    left.plot(curves.formula.numpy(), color=COLORS[0])
    left.set_ylabel("2/d Σ|S_i| (formula)")
    # dark for the first layer, light for the last
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
    """Draw all rows of heat maps and all decays below each other in one figure."""
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
        default_length: the default of *length*; if the model has fewer positions, all are drawn.
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
            f"{checkpoint}: --position-encoding {sides[0].encoding.name} has nothing to plot: "
            "no table, no content-free logits, and no rotation in layers with softmax; give a "
            "model that has one of these"
        )
    draw(maps, decays, output)
