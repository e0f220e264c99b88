"""Importing this registers what model folders of the tasks hold, and what reads them."""

from fairseq_posenc.packs.comprehension.data import SETTINGS
from fairseq_posenc.packs.comprehension.question_answering import ChoiceModel, SpanModel
from fairseq_posenc.packs.comprehension.span_prediction import TASK
from fairseq_posenc.serving.hub import FOLDER_TASKS, FolderTask

FOLDER_TASKS[TASK] = FolderTask(SpanModel, (SETTINGS,))
FOLDER_TASKS["sentence_ranking"] = FolderTask(ChoiceModel)
