"""Importing this registers the tasks, and lets them start from a masked language model."""

from fairseq.criterions.sentence_ranking import SentenceRankingCriterion
from fairseq.tasks.sentence_ranking import SentenceRankingTask

from fairseq_posenc.extensions import register_extension
from fairseq_posenc.models.masked_lm import register_fine_tuning
from fairseq_posenc.packs.comprehension import candidate_ranking, choices, span_prediction

for task in (span_prediction.TASK, candidate_ranking.TASK):
    register_fine_tuning(task)
register_extension(SentenceRankingCriterion, "forward", choices.leave_out_empty_choices)
register_extension(SentenceRankingTask, "load_dataset", choices.check_choices)
