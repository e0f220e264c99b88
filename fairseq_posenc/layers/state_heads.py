"""Heads that a task of pre-training adds to a masked language model.

A head reads the states between the layers.  A criterion requests its output by
``model(…, heads={name: inputs})``.
"""

from typing import Any, ClassVar, Dict, Sequence

from torch import Tensor, nn

from fairseq_posenc.flags.registry import ClassRegistry

#: The pre-training flag that needs a module, by the name of the module; fine-tuning omits it.
PRETRAINING: Dict[str, str] = {}


class StateHead:
    """A head that reads states between layers."""

    #: the name of the head's module in the model
    module: ClassVar[str]
    #: whether the head reads the states between all layers, or the last one alone
    reads_all: ClassVar[bool] = False

    def add(self, model: nn.Module) -> None:
        """Add the module, and draw its parameters."""
        raise NotImplementedError

    def read(self, model: Any, states: Sequence[Tensor], **inputs: Any) -> Tensor:
        """The output of the head, which also reads *inputs* from the criterion.

        *states* are the input of the first layer and the outputs of all layers, (B, T, C) each, the
        last one after the final norm; or the last one alone.
        """
        raise NotImplementedError


HEADS = ClassRegistry("head")
#: Decorates a subclass of :class:`StateHead`, under the name by which tasks add it.
register_head = HEADS.register
