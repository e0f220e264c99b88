"""Which task needs which family of models, so that a mix-up is named instead of crashing."""

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
