"""Parameters of layers under the names of a class of transformers, in both directions."""

from typing import Callable, Collection, List, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.huggingface.names import Joint, Names
from fairseq_posenc.exchange.native import size_of
from fairseq_posenc.exchange.reader import LEADING, ForeignParameters, Reader
from fairseq_posenc.models.kinds import PAD, Parameters

PARTS = ("weight", "bias")


def write_layers(
    ours: Parameters, theirs: Names, stack: str, layers: int, heads: int
) -> Tuple[ForeignParameters, List[str]]:
    """The parameters of layers by the names of a class.

    Args:
        ours: our parameters; those of layers are removed.
        theirs: the names in the class.
        stack: start of our names of embeddings and layers.
        layers: number of layers.
        heads: H.

    Returns:
        the parameters, and the names of the weights that we have not.
    """
    state: ForeignParameters = {}
    lacking: List[str] = []
    for number in range(layers):
        prefix = f"{stack}layers.{number}."
        for module in theirs.modules:
            for part in PARTS:
                found = [ours.pop(f"{prefix}{name}.{part}", None) for name in module.ours]
                present = [x for x in found if x is not None]
                name = f"{theirs.layer.format(number)}{module.theirs}.{part}"
                if present:
                    state[name] = module.layout.join(present, heads)
                elif part == "weight":
                    lacking.append(name)
    return state, lacking


def read_layers(
    reader: Reader,
    theirs: Names,
    stack: str,
    layers: int,
    heads: int,
    biased: Callable[[str], bool],
    ours_biased: Callable[[str], bool],
    absent: Collection[str] = (),
) -> None:
    """Move the parameters of layers from the names of a class to ours.

    Args:
        reader: the parameters.
        theirs: the names in the class.
        stack: start of our names of embeddings and layers.
        layers: number of layers.
        heads: H.
        biased: whether one of their modules has a bias.
        ours_biased: whether one of ours has a bias, which is zero where theirs has none.
        absent: weights that the class does not have.
    """
    for number in range(layers):
        prefix, ours = theirs.layer.format(number), f"{stack}layers.{number}."
        for module in theirs.modules:
            if f"{prefix}{module.theirs}.weight" in absent:
                continue
            names_here = [ours + name for name in module.ours]
            for part in PARTS:
                name = f"{prefix}{module.theirs}.{part}"
                if part == "weight" or biased(module.theirs):
                    parts = _split(reader, name, module, heads)
                    for mine, x in zip(names_here, parts):
                        reader.put(f"{mine}.{part}", x, name)
                elif ours_biased(module.ours[0]):  # ours has all biases or none
                    for mine in names_here:
                        zeros = torch.zeros(len(reader.parameters[f"{mine}.weight"]))
                        reader.put(f"{mine}.bias", zeros, name)


def _split(reader: Reader, name: str, module: Joint, heads: int) -> List[Tensor]:
    """Take a tensor of theirs, and split it into ours."""
    tensor, number = reader.take(name), len(module.ours)
    try:
        parts = module.layout.split(tensor, number, heads)
    except (RuntimeError, TypeError):  # sizes that cannot be divided, or no rows at all
        parts = []
    if len(parts) != number:
        raise UsageError(
            f"{reader.path}: {name} has size {size_of(tensor)}, and cannot be split into {number} "
            f"parts of {heads} heads"
        )
    return parts


def take_gain(reader: Reader, ours: str, channels: int) -> Tensor:
    """Remove the gain of a norm (C) from our parameters, which have none.

    Raises:
        UsageError: it has another size.
    """
    gain = reader.parameters.pop(ours)
    if gain.shape != (channels,):
        raise UsageError(
            f"{reader.origin[ours]} has size {size_of(gain)}, but the settings beside it require "
            f"{channels}"
        )
    return gain


def absorb_gain(reader: Reader, gain: Tensor, names: Sequence[str]) -> None:
    """Multiply the columns of our weights *names*, where present, by *gain* (C).

    W (g ⊙ x) = (W diag g) x.

    Raises:
        UsageError: a weight has another number of columns.
    """
    for name in [name for name in names if name in reader.parameters]:
        weight = reader.parameters[name]
        if weight.dim() != 2 or weight.size(1) != len(gain):
            raise UsageError(
                f"{reader.origin[name]} has size {size_of(weight)}, but the settings beside it "
                f"require {len(gain)} columns"
            )
        reader.parameters[name] = weight * gain


def positions(reader: Reader, theirs: str, first: int, longest: int) -> Tensor:
    """The rows of a table of positions (longest, C).

    Args:
        reader: their parameters; the table is removed.
        theirs: its name.
        first: the row of the first position.
        longest: the longest text by config.json.

    Raises:
        UsageError: it has another number of rows.
    """
    table = reader.take(theirs)
    if table.dim() != 2 or len(table) != first + longest:
        raise UsageError(
            f"{reader.path}: {theirs} has {len(table) if table.dim() else 1} rows, and the longest "
            f"text by config.json needs {first + longest}"
        )
    return table[first:]


def put_positions(reader: Reader, table: Tensor, ours: str, theirs: str) -> None:
    """Store positions (T, C) as fairseq's table, which begins behind the number of padding."""
    front = table.new_zeros(PAD + 1, table.size(1))
    reader.put(ours, torch.cat((front, table)), theirs)


def extended(rows: Tensor, number: int) -> Tensor:
    """*rows* (V, C), followed by *number* copies of the row of ``<unk>``."""
    return torch.cat((rows, rows[LEADING.index("<unk>")].expand(number, -1)))


def interleaved_to_half(rows: Tensor, head_dim: int, dim: int) -> Tensor:
    """Reorder the first channels of every head: neighbours become i and i + dim/2.

    Args:
        rows: (H·D, …), the weight or bias of a projection.
        head_dim: D.
        dim: rotated channels.
    """
    heads = rows.view(-1, head_dim, *rows.shape[1:])
    rotated, rest = heads[:, :dim], heads[:, dim:]
    return torch.cat((rotated[:, 0::2], rotated[:, 1::2], rest), dim=1).reshape(rows.shape)


def with_halves(parameters: Parameters, head_dim: int, dim: int) -> Parameters:
    """A copy of *parameters* whose queries and keys are reordered by :func:`interleaved_to_half`.

    Args:
        parameters: those of a model with interleaved pairs.
        head_dim: D.
        dim: rotated channels.
    """
    return {
        name: interleaved_to_half(x, head_dim, dim)
        if ".q_proj." in name or ".k_proj." in name
        else x
        for name, x in parameters.items()
    }
