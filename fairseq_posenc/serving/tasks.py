"""Tasks whose models have more in their folders than others, or a hub interface of their own."""

from typing import Any, Dict, NamedTuple, Tuple

from fairseq_posenc.basics.packs import load


class FolderTask(NamedTuple):
    """The model folders of a task."""

    interface: Any = None  # a class derived from SentenceHubInterface, which is the default
    files: Tuple[str, ...] = ()  # files of the data that `pack` copies besides dictionaries


#: By the name of the task.
FOLDER_TASKS: Dict[str, FolderTask] = {}


def folder_task(name: str) -> FolderTask:
    """What is registered for the model folders of a task, by packs, too."""
    load("serving")
    return FOLDER_TASKS.get(name, FolderTask())
