"""Tasks whose models have more in their folders than others, or classes of their own."""

from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from fairseq_posenc.basics.packs import load
from fairseq_posenc.serving.model_folder import ModelFolder


class FolderTask(NamedTuple):
    """The model folders of a task."""

    # returns the model of a folder on a device; by default fairseq's hub interface
    model: Optional[Callable[[ModelFolder, Any], Any]] = None
    files: Tuple[str, ...] = ()  # files of the data that `pack` copies besides dictionaries


#: By the name of the task.
FOLDER_TASKS: Dict[str, FolderTask] = {}


def folder_task(name: str) -> FolderTask:
    """What is registered for the model folders of a task, by packs, too."""
    load("serving")
    return FOLDER_TASKS.get(name, FolderTask())
