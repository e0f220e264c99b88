"""Generated tasks: made-up data of any length, to see at which length an encoding breaks.

A ``--user-dir`` with ``--criterion answer_cross_entropy``, and all that fairseq_posenc registers.
"""

import fairseq_posenc  # noqa: F401 - fairseq takes only one --user-dir
from generated_tasks import answers, arithmetic, automata, expressions, recall, strings
from generated_tasks.registry import GENERATED_TASKS, register_generated_task

__all__ = [
    "GENERATED_TASKS",
    "answers",
    "arithmetic",
    "automata",
    "expressions",
    "recall",
    "register_generated_task",
    "strings",
]
