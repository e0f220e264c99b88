"""Parameters of layers under the names of a class of transformers, in both directions."""

from typing import Callable, Collection, List, Tuple

import torch
from torch import Tensor

from fairseq_posenc.exchange.causal_names import Names
from fairseq_posenc.exchange.kinds import Parameters
from fairseq_posenc.exchange.reader import LEADING, ForeignParameters, Reader

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
    absent: Collection[str] = (),
) -> None:
    """Move the parameters of layers from the names of a class to ours.

    Args:
        reader: the parameters.
        theirs: the names in the class.
        stack: start of our names of embeddings and layers.
        layers: number of layers.
        heads: H.
        biased: whether one of our modules has a bias, which is zero where the class has none.
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
                has = part == "weight" or biased(module.ours[0])
                if part == "weight" or (has and name in reader):
                    tensor = reader.take(name)
                    parts = module.layout.split(tensor, len(names_here), heads)
                    for mine, x in zip(names_here, parts):
                        reader.put(f"{mine}.{part}", x, name)
                elif has:  # ours has all biases or none
                    for mine in names_here:
                        zeros = torch.zeros(len(reader.parameters[f"{mine}.weight"]))
                        reader.put(f"{mine}.bias", zeros, name)


def leave_out_rows(parameters: ForeignParameters, names: Collection[str], known: int) -> List[str]:
    """Remove rows behind the last symbol, in place, which only fill a matrix; return notes.

    Args:
        parameters: the parameters of a model.
        names: those with a row for each symbol.
        known: number of symbols.
    """
    notes: List[str] = []
    for name in names:
        rows = parameters.get(name)
        if rows is not None and rows.dim() and len(rows) > known:
            parameters[name] = rows[:known]
            notes.append(f"left out {len(rows) - known} rows of {name} that have no symbol")
    return notes


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
