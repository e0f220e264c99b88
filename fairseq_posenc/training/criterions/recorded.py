"""A model that keeps what it returned, for losses in addition to one of fairseq's."""

from typing import Any

from fairseq.models import BaseFairseqModel


class Recorded:
    """Calls a model once for several losses.

    fairseq's criterions call the model themselves and return the loss alone; given this in its
    place, ``output`` is what the model returned.

    Args:
        model: the model, also one wrapped for distributed training.
        inputs: further arguments of every call.
    """

    def __init__(self, model: BaseFairseqModel, **inputs: object) -> None:
        self.model, self.inputs = model, inputs
        self.output: Any = None

    def __call__(self, **inputs: object) -> Any:
        """The output of the model, which is also kept in ``output``."""
        self.output = self.model(**inputs, **self.inputs)
        return self.output

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)
