"""Which task and criterion go with which models, so that a mix-up is named instead of crashing."""

from typing import Any

from fairseq_posenc.errors import UsageError

# family: what it is called, an architecture to try, the tasks of fairseq that need it
_FAMILIES = {
    "translation": (
        "a translation model",
        "roformer_base",
        (
            "translation",
            "translation_multi_simple_epoch",
            "translation_from_pretrained_bart",
            "semisupervised_translation",
            "denoising",
        ),
    ),
    "masked_lm": (
        "a masked language model",
        "roformer_masked_lm_base",
        ("masked_lm", "sentence_prediction", "sentence_ranking", "multilingual_masked_lm"),
    ),
    "language_model": (
        "a language model",
        "roformer_lm_small",
        ("language_modeling", "multilingual_language_modeling"),
    ),
}

# criterions of fairseq that end in a traceback with an adaptive softmax; a user's own may know it
_WHOLE_SOFTMAX = ("cross_entropy", "label_smoothed_cross_entropy")


def refuse_other_families(family: str, arch: str, where: Any) -> None:
    """Stop if the task in use belongs to another family than *arch*.

    Args:
        family: key of the architecture's own family.
        arch: what ``--arch`` gave.
        where: parsed command line, or the task object.

    Raises:
        UsageError: naming an architecture that fits the task.
    """
    settings = getattr(where, "cfg", None) or getattr(where, "args", None)
    task = getattr(where, "task", None) or getattr(settings, "_name", None)
    for other, (what, instead, tasks) in _FAMILIES.items():
        if other != family and task in tasks:
            raise UsageError(
                f"--arch {arch} is {_FAMILIES[family][0]}, but --task {task} needs {what}, "
                f"for example --arch {instead}"
            )


def refuse_other_criterions(args: Any) -> None:
    """Stop if the output layer and the criterion of a training do not go together.

    Args:
        args: parsed command line, with the architecture's settings; without a criterion, as that
            of other commands, it passes.

    Raises:
        UsageError: naming the flag that is missing.
    """
    criterion, cutoff = getattr(args, "criterion", None), args.adaptive_softmax_cutoff
    if criterion == "adaptive_loss":
        if cutoff is None:
            raise UsageError(
                "--criterion adaptive_loss: give --adaptive-softmax-cutoff, for example 20000,60000"
            )
        if args.ddp_backend in ("c10d", "pytorch_ddp"):
            raise UsageError(
                f"--criterion adaptive_loss: does not work with --ddp-backend {args.ddp_backend}, "
                "with one process either; give --ddp-backend legacy_ddp"
            )
    elif criterion in _WHOLE_SOFTMAX and cutoff is not None:
        raise UsageError(
            f"--adaptive-softmax-cutoff {cutoff}: --criterion {criterion} has no use for it; give "
            "--criterion adaptive_loss --ddp-backend legacy_ddp"
        )
