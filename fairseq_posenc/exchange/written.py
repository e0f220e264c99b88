"""A whole model in a folder, and the places where the matrices of an adapted one belong."""

from typing import Any, Callable, Mapping, NamedTuple, Sequence

from torch import nn

from fairseq_posenc.exchange.formats import Wanted
from fairseq_posenc.exchange.huggingface.names import Names
from fairseq_posenc.exchange.kinds import Parameters


class Written(NamedTuple):
    """A model of this plug-in that was written to a folder.

    Args:
        wanted: the request, with the file of the checkpoint.
        load: loads a checkpoint with the same dictionaries, given its file and settings to change.
        compare: gives the largest difference between the logits of a loaded model and the logits
            of the folder's model.
        description: the implementation that computes the logits of the folder's model.
        notes: what the user should know.
    """

    wanted: Wanted
    load: Callable[[str, Mapping[str, Any]], nn.Module]
    compare: Callable[[nn.Module], float]
    description: str
    notes: Sequence[str] = ()


class Stack(NamedTuple):
    """Layers of a model, and where a class of transformers has their projections.

    Args:
        theirs: the names in the class.
        ours: start of our names of the layers.
        layers: number of layers.
        heads: H.
        ordered: brings the rows of parameters, by our names, into the order of the class.
    """

    theirs: Names
    ours: str
    layers: int
    heads: int
    ordered: Callable[[Parameters], Parameters] = dict
