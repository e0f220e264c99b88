"""``--document-mask``: its checks, and what batches of masked language models tell of documents."""

from typing import Any, Dict

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.inherit import is_fine_tuning
from fairseq_posenc.flags.options import Layer, Options, option
from fairseq_posenc.models.segments import original_tokens

FLAG = "--document-mask"
#: Settings under which documents cannot be computed as if they were alone, and the reasons.
_WHY_NOT = {
    "untie_cls": "[CLS] is the first token of a sample, and documents after the first have none",
    "funnel_stages": "[CLS] is not pooled, and documents after the first have none",
    "memory_length": "a memory holds the tokens before a sample, of whatever document",
}


def check_documents(cfg: Options, settings: Options, fresh: bool) -> None:
    """Refuse ``--document-mask`` where it contradicts the model, or samples are not packed.

    Args:
        cfg: flat configuration, complete.
        settings: the parsed command line, or the settings of the task.
        fresh: whether the model is to be trained, and not loaded from a checkpoint.

    Raises:
        UsageError: naming the flag to drop.
    """
    if not option(cfg, "document_mask"):
        return
    for name, reason in _WHY_NOT.items():
        value = option(cfg, name)
        if value:
            text = "" if value is True else f" {value}"
            raise UsageError(f"{FLAG}: {reason}; drop it, or {flag_of(name)}{text}")
    if not fresh:
        return
    task = option(settings, "task") or option(settings, "_name")
    if is_fine_tuning(settings):
        raise UsageError(f"{FLAG}: the samples of --task {task} are not packed; drop it")
    if option(settings, "span_boundary_objective"):
        raise UsageError(
            f"{FLAG}: the token before a span may be of another document; drop it, or "
            "--span-boundary-objective"
        )
    pairs, mode = option(settings, "pairs"), option(settings, "sample_break_mode")
    if str(pairs or "none") != "none":
        raise UsageError(f"{FLAG}: the two texts of --pairs {pairs} are read together; drop it")
    if str(mode) == "eos" and option(cfg, "position_separators") is None:
        raise UsageError(
            f"{FLAG}: --sample-break-mode eos makes a sample of each line, which ends with </s>; "
            "drop it, or give --sample-break-mode none or complete"
        )


def mark_batch(sample: Dict[str, Any], encoder: Layer) -> None:
    """Add ``document_starts`` to a batch of ``masked_lm`` or ``masked_lm_pairs``, in place.

    A separator can itself be masked, and a random token be one, so they come from the original
    tokens.

    Args:
        sample: the batch; ``target`` (B, T) is padding except at masked tokens.
        encoder: the sentence encoder.
    """
    inputs = sample.get("net_input", {})
    if "src_tokens" in inputs and "document_starts" not in inputs:
        original = original_tokens(sample, encoder.padding_idx)
        inputs["document_starts"] = encoder.documents.begins(original)
