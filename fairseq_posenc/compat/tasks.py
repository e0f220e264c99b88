"""Masking whole words in a task of fairseq."""

from typing import Any, Optional

from fairseq.tasks import FairseqTask
from fairseq.tasks.masked_lm import MaskedLMTask
from omegaconf import OmegaConf

from fairseq_posenc.basics.errors import UsageError


def mask_whole_words() -> None:
    """Let ``--task masked_lm`` find the flags of ``--bpe``, which knows the beginnings of words.

    fairseq 0.12.2 and fairseq-fixed read ``self.args`` for ``--mask-whole-words`` and never set it,
    so that the flag ends with "no attribute 'args'".
    """
    if not hasattr(MaskedLMTask, "args"):
        MaskedLMTask.args = _FlagsOfBPE()


def bpe_flags(task: FairseqTask) -> Optional[Any]:
    """The settings of ``--bpe``, which *task* itself does not hold; None if it is not given."""
    parent = task.cfg._get_parent() if OmegaConf.is_config(task.cfg) else None
    flags = None if parent is None else parent.get("bpe")
    return None if flags is None or flags.get("_name") is None else flags


class _FlagsOfBPE:
    """The settings of ``--bpe``, which the task itself does not hold."""

    def __get__(self, task: Optional[MaskedLMTask], owner: Any = None) -> Any:
        if task is None:
            return self
        flags = bpe_flags(task)
        if flags is None:
            raise UsageError(
                "--mask-whole-words: needs --bpe to find beginnings of words, for example gpt2"
            )
        return flags
