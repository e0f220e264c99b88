"""The flag ``--document-mask``, and its checks."""

from dataclasses import dataclass
from typing import Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import is_fine_tuning
from fairseq_posenc.configuration.features import Completed, refuse_flags, register_feature
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.models.segments import samples_of

NAME, FLAG = "document_mask", "--document-mask"
#: Flags of position rules that also set the separators of documents.
READS = ("position_separators",)
#: Settings under which documents cannot be computed separately, and the reasons.
_WHY_NOT = {
    "untie_cls": "[CLS] is the first token of a sample, and documents after the first have none",
    "funnel_stages": "[CLS] is not pooled, and documents after the first have none",
    "memory_length": "a memory holds the tokens before a sample, of whatever document",
    "cuda_graphs": "the tokens in a cache change where a document begins",
}


@dataclass
class DocumentFlags:
    """The flag of packed samples."""

    document_mask: Optional[bool] = setting(
        False,
        "compute each document of a sample as if it were alone: attention stays within it, and "
        "positions start again; documents end as --position-separators says",
        role="free",
        alone="the exported model takes each text for one document",
    )


def check_documents(completed: Completed) -> None:
    """Refuse ``--document-mask`` if it contradicts the model, or if samples are not packed.

    Raises:
        UsageError: naming the flag to drop.
    """
    cfg, settings, task = completed.cfg, completed.settings, completed.task
    if not option(cfg, "document_mask"):
        return
    refuse_flags(cfg, FLAG, _WHY_NOT, "drop it, or")
    if not completed.fresh:
        return
    if is_fine_tuning(settings):
        raise UsageError(f"{FLAG}: the samples of --task {task} are not packed; drop it")
    samples = samples_of(settings)
    unpacked = samples and samples.unpacked(settings)
    if unpacked:
        raise UsageError(f"{FLAG}: {unpacked}")
    if (
        str(option(settings, "sample_break_mode")) == "eos"
        and option(cfg, "position_separators") is None
    ):
        raise UsageError(
            f"{FLAG}: --sample-break-mode eos makes a sample of each line, which ends with </s>; "
            "drop it, or give --sample-break-mode none or complete"
        )


register_feature(DocumentFlags, models=["posenc_masked_lm", "posenc_lm"], check=check_documents)
