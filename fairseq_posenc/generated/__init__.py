"""Generated tasks: made-up data of any length, to see at which length an encoding breaks.

A task is a function from a length to an input and its only right output.  Whatever is registered
can be written by ``fairseq-posenc generate-task`` and trained by studies; a ``--user-dir`` can
register tasks of its own.
"""

from fairseq_posenc.generated import arithmetic, automata, expressions, recall, strings
from fairseq_posenc.generated.registry import GENERATED_TASKS, register_generated_task

__all__ = [
    "GENERATED_TASKS",
    "arithmetic",
    "automata",
    "expressions",
    "recall",
    "register_generated_task",
    "strings",
]
