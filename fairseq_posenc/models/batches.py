"""What batches of a task bring to models, beside what fairseq puts into them."""

from typing import Any, Callable, Dict

from fairseq.tasks import FairseqTask

from fairseq_posenc.flags.options import Layer
from fairseq_posenc.models.documents import mark_batch
from fairseq_posenc.models.segments import label_batch


def label_batches(step: Callable[..., Any]) -> Callable[..., Any]:
    """Label the batches of masked language models before a step of the task.

    Models that read pairs are told the segments, and models that read documents their beginnings:
    masks hide separators.
    """

    def wrapper(
        task: FairseqTask, sample: Dict[str, Any], model: Layer, *args: object, **kwargs: object
    ) -> Any:
        if getattr(model, "reads_pairs", False):
            label_batch(task, sample, model.encoder.sentence_encoder)
        if getattr(model, "reads_documents", False):
            mark_batch(sample, model.encoder.sentence_encoder)
        return step(task, sample, model, *args, **kwargs)

    return wrapper
