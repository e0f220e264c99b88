"""What batches of pre-training bring to models, beside what fairseq puts into them."""

from typing import Any, Callable, Dict

import torch
from fairseq.tasks import FairseqTask

from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.flags.options import Layer
from fairseq_posenc.models.segments import samples_are_pairs


def label_batches(step: Callable[..., Any]) -> Callable[..., Any]:
    """Tell masked language models of the original tokens before a step of the task.

    A separator can itself be masked, and a random token be one.  Models that read pairs get the
    segments, all 0 in blocks of running text, and those that go by separators the tokens.
    """

    def wrapper(
        task: FairseqTask, sample: Dict[str, Any], model: Layer, *args: object, **kwargs: object
    ) -> Any:
        inputs, pairs = sample.get("net_input", {}), None
        reads_original = getattr(model, "reads_original", False)
        if getattr(model, "reads_pairs", False):
            pairs = samples_are_pairs(task_settings(task))  # None where nothing is masked
        if "src_tokens" in inputs and (reads_original or pairs is not None):
            encoder = model.encoder.sentence_encoder
            target = sample["target"]  # padding except at masked tokens
            original = torch.where(target.ne(encoder.padding_idx), target, inputs["src_tokens"])
            if reads_original:
                inputs.setdefault("original", original)
            if pairs is not None and "segment_labels" not in inputs:
                labels = encoder.segment_labels(original)
                inputs["segment_labels"] = labels if pairs else torch.zeros_like(labels)
        return step(task, sample, model, *args, **kwargs)

    return wrapper
