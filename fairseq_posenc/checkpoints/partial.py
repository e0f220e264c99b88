"""Checkpoints that hold a part of a model, where another file holds the rest.

A change to a built model (:data:`.models.family.CHANGES`) says what the checkpoints of a
model leave out.  Where a whole model is needed, as in averaging and export, such a file is refused.
"""

from typing import Any, Callable, Dict, FrozenSet, Mapping

from torch import Tensor

from fairseq_posenc.basics.errors import UsageError

#: What a checkpoint with an entry of this name holds instead of a model, and what to do with it.
PARTIAL: Dict[str, str] = {}


class PartlySaved:
    """Mixin of models whose checkpoints can hold a part; it comes before fairseq's class."""

    #: names of the parameters and buffers that checkpoints leave out
    left_out: FrozenSet[str] = frozenset()
    #: refuses a state, by names, that was not saved beside the parameters that this model has
    check_state: Callable[[Mapping[str, Tensor]], None] = staticmethod(lambda state: None)

    def state_dict(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """The state that a checkpoint holds."""
        state = super().state_dict(*args, **kwargs)  # type: ignore[misc]  # fairseq's
        for name in self.left_out:
            state.pop(name, None)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load a state; what checkpoints leave out stays as it is where the state lacks it."""
        if self.left_out:
            self.check_state(state_dict)
            state_dict = {**super().state_dict(), **state_dict}  # type: ignore[misc]
        return super().load_state_dict(state_dict, *args, **kwargs)  # type: ignore[misc]


def refuse_partial(path: str, parameters: Mapping[str, Tensor]) -> None:
    """Refuse the checkpoint of a part of a model where a whole one is needed."""
    for entry, words in PARTIAL.items():
        if entry in parameters:
            raise UsageError(f"{path}: {words}")
