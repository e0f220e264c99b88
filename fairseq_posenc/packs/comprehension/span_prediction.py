"""Predicts answers that are spans of a passage, as in SQuAD 1.1, SQuAD 2.0 and CMRC 2018.

BERT, Devlin et al., arXiv 1810.04805, sections 4.2 and 4.3; RoBERTa, Liu et al., arXiv 1907.11692,
section 5.2.
"""

import dataclasses
import logging
import os
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch
from fairseq import models, utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask, register_task
from fairseq.tasks.masked_lm import MaskedLMTask
from omegaconf import II, MISSING
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import in_blocks
from fairseq_posenc.configuration.resolve import open_config
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import check_settings
from fairseq_posenc.packs.comprehension.data import (
    Passage,
    Record,
    Split,
    read_settings,
    read_split,
)
from fairseq_posenc.packs.comprehension.scores import RULES, scores
from fairseq_posenc.packs.comprehension.span_windows import SpanWindows
from fairseq_posenc.packs.comprehension.spans import (
    ANSWERABILITY,
    Answered,
    Candidate,
    answered,
    best_spans,
    span_loss,
)
from fairseq_posenc.training.base import Rows, SummingCriterion, rows_of_all_workers
from fairseq_posenc.training.masked_lm import Recorded

logger = logging.getLogger(__name__)

TASK = "span_prediction"
#: The key of the candidate answers in the logging output of a validation batch.
ROWS = "_spans"
_POSITIVE = {"at_least": 1}


@dataclass
class SpanPredictionConfig(FairseqDataclass):
    """Flags of ``--task span_prediction``."""

    data: str = field(default=MISSING, metadata={"help": "path to data directory"})
    init_token: int = field(default=0, metadata={"help": "id of the first token, [CLS]"})
    separator_token: Optional[int] = field(
        default=None, metadata={"help": "id of a separator to add between question and passage"}
    )
    no_shuffle: bool = field(default=False, metadata={"help": "keep the order of the questions"})
    max_positions: int = field(default=512, metadata={"help": "longest window, in tokens"})
    stride: int = field(
        default=128,
        metadata={"help": "tokens between the starts of neighbouring windows", **_POSITIVE},
    )
    longest_question: Optional[int] = field(
        default=None,
        metadata={"help": "cut questions off after this many tokens (64 in BERT)", **_POSITIVE},
    )
    longest_answer: int = field(
        default=30, metadata={"help": "maximum number of tokens in an answer", **_POSITIVE}
    )
    n_best: int = field(default=20, metadata={"help": "answers considered per window", **_POSITIVE})
    answerability: Optional[ChoiceEnum(ANSWERABILITY)] = field(  # type: ignore[valid-type]
        default=None,
        metadata={
            "help": "how to predict that a question has no answer: span, by the span [CLS], as in "
            "BERT; classifier, by a jointly trained classifier, as in RoBERTa; none, never "
            "(default: span if questions of the data folder lack answers, else none)"
        },
    )
    no_answer_threshold: float = field(
        default=0.0,
        metadata={"help": "predict no answer above this null score difference or classifier score"},
    )
    span_head_name: str = field(default="span_head", metadata={"help": "name of the span head"})
    seed: int = II("common.seed")


@register_task(TASK, dataclass=SpanPredictionConfig)
class SpanPredictionTask(MaskedLMTask):
    """Finds the answer to a question in a passage; long passages are split into windows.

    In validation, ``exact`` and ``f1`` are the scores that the published scripts would give to the
    best answers over all windows, in percent.  To select checkpoints by F1, give
    ``--best-checkpoint-metric f1 --maximize-best-checkpoint-metric``.

    Raises:
        UsageError: a flag has a value that cannot work, or the data are not prepared.
    """

    def __init__(self, cfg: SpanPredictionConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg, dictionary)
        check_settings(cfg, dataclasses.fields(SpanPredictionConfig))
        self.settings = read_settings(cfg.data)
        if cfg.answerability is None:  # kept in checkpoints, so that other data do not change it
            cfg.answerability = "span" if self.settings.unanswerable else "none"
        self.answerability = str(cfg.answerability)
        self.questions: List[Record] = []  # of all splits; batches hold indices into this list
        self.passages: List[Passage] = []  # the passage of each question

    @property
    def classified(self) -> bool:
        """Whether a classifier decides if there is an answer."""
        return self.answerability == "classifier"

    def load_dataset(self, split: str, combine: bool = False, **kwargs: object) -> SpanWindows:
        """Load the windows of a split."""
        texts = read_split(self.cfg.data, split)
        if self.answerability == "none" and any(q.answers == [] for q in texts.questions):
            logger.warning(
                "%s: some questions have no answer, but with --answerability none the model always "
                "predicts an answer",
                split,
            )
        dataset = self.windows_of(texts, os.path.join(self.cfg.data, split))
        logger.info(
            "%s: %d questions in %d windows; %d questions cut off",
            *(split, len(texts.questions), len(dataset), dataset.cut),
        )
        self.datasets[split] = dataset
        return dataset

    def windows_of(self, split: Split, where: str) -> SpanWindows:
        """The windows of a split; its questions are numbered after those of earlier splits."""
        first = len(self.questions)
        self.questions += split.questions
        self.passages += [split.passages[question.passage] for question in split.questions]
        return SpanWindows(split, self.dictionary, self.cfg, first, where)

    def build_model(self, cfg: Options, from_checkpoint: bool = False) -> BaseFairseqModel:
        """Build the model, with its span head.

        Raises:
            UsageError: the architecture does not support heads that score every token.
        """
        with open_config(cfg):
            cfg.max_positions = self.cfg.max_positions
        model = models.build_model(cfg, self, from_checkpoint)
        if not hasattr(model, "register_token_head"):
            raise UsageError(
                f"--arch {getattr(cfg, 'arch', None) or cfg._name}: --task {TASK} needs a masked "
                "language model of the plug-in; give --arch posenc_masked_lm, which also loads "
                "checkpoints of fairseq's RoBERTa"
            )
        model.register_token_head(self.cfg.span_head_name, 3 if self.classified else 2)
        return model

    def build_criterion(self, cfg: Options, from_checkpoint: bool = False) -> FairseqCriterion:
        """Build the criterion, which has to be ``span_prediction``."""
        if cfg._name != TASK:
            raise UsageError(f"--criterion {cfg._name}: --task {TASK} needs --criterion {TASK}")
        return super().build_criterion(cfg)

    # --- answers

    def candidates(self, logits: Tensor, sample: Dict[str, Any]) -> Tensor:
        """Find each window's best spans from *logits* (B, T, 2), or (B, T, 3) with a classifier.

        Returns:
            (N, 5) float64: index of the question, first and last token of the span in the passage,
            score of the span, and score of its window for no answer.
        """
        first, last, totals, null = best_spans(
            logits,
            sample["passage"],
            sample["own"],
            self.cfg.longest_answer,
            self.cfg.n_best,
            self.classified,
        )
        shift = sample["shift"][:, None]
        columns = (sample["question"][:, None], first - shift, last - shift, totals, null[:, None])
        rows = torch.stack([column.double().expand_as(totals) for column in columns], dim=2)
        return rows[torch.isfinite(totals)]

    @torch.no_grad()
    def rows_of(self, model: BaseFairseqModel, windows: SpanWindows, batch_size: int) -> Tensor:
        """The rows (N, 5) of :meth:`candidates` for *windows*; *model* is in evaluation mode."""
        device, rows = next(model.parameters()).device, []
        for batch in in_blocks(sorted(range(len(windows)), key=windows.size), batch_size):
            sample = windows.collater([windows[number] for number in batch])
            sample = utils.apply_to_sample(lambda tensor: tensor.to(device), sample)
            head = self.cfg.span_head_name
            logits, _ = model(**sample["net_input"], classification_head_name=head)
            rows.append(self.candidates(logits, sample).cpu())
        return torch.cat(rows)

    def answers(self, rows: Tensor) -> Iterable[Tuple[Record, Answered]]:
        """Answer each question from the *rows* (N, 5) of :meth:`candidates` for all windows."""
        by_question: Dict[int, List[Candidate]] = {}
        for question, start, end, score, null in rows.tolist():
            candidate = Candidate(int(start), int(end), score, null)
            by_question.setdefault(int(question), []).append(candidate)
        for number, candidates in sorted(by_question.items()):
            passage, most = self.passages[number], self.cfg.n_best
            yield self.questions[number], answered(candidates, passage, most, self.classified)

    @property
    def threshold(self) -> float:
        """The null score difference above which the model predicts no answer."""
        return float("inf") if self.answerability == "none" else self.cfg.no_answer_threshold

    def scores(self, rows: Tensor) -> Dict[str, float]:
        """Exact match and F1, in percent, of :meth:`answers` against the correct answers."""
        replies = list(self.answers(rows))
        predictions = {record.id: entry.text(self.threshold) for record, entry in replies}
        answers = {record.id: record.answers for record, _ in replies}
        return scores(predictions, answers, RULES[self.settings.rules])

    def valid_step(
        self, sample: Dict[str, Any], model: BaseFairseqModel, criterion: FairseqCriterion
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Compute the loss and the candidate answers of a batch."""
        recorded: Any = Recorded(model)
        loss, sample_size, output = super().valid_step(sample, recorded, criterion)
        output[ROWS] = rows_of_all_workers(self.candidates(recorded.output[0], sample))
        return loss, sample_size, output

    def reduce_metrics(
        self, logging_outputs: List[Dict[str, Any]], criterion: FairseqCriterion
    ) -> None:
        """Log the loss, and in validation the scores of all batches so far."""
        super().reduce_metrics(logging_outputs, criterion)
        for output in logging_outputs:
            if ROWS in output:
                metrics.log_custom(Rows, ROWS, output[ROWS])
                for name in ("exact", "f1"):
                    metrics.log_derived(
                        name,
                        lambda meters, name=name: round(self.scores(meters[ROWS].rows())[name], 2),
                    )

    def max_positions(self) -> int:
        """Maximum number of tokens in a window."""
        return int(self.cfg.max_positions)


@register_criterion(TASK, dataclass=FairseqDataclass)
class SpanPredictionCriterion(SummingCriterion):
    """Cross entropy of the first and the last token of the answer.

    See :func:`fairseq_posenc.packs.comprehension.spans.span_loss`.

    Raises:
        UsageError: the task is not ``span_prediction``.
    """

    def __init__(self, task: FairseqTask) -> None:
        super().__init__(task)
        if not hasattr(task, "candidates"):
            raise UsageError(f"--criterion {TASK}: needs --task {TASK}")

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Compute the loss of a batch of windows."""
        head = self.task.cfg.span_head_name
        logits, _ = model(**sample["net_input"], classification_head_name=head)
        each = span_loss(logits, sample["passage"], sample["target"], self.task.classified)
        return self.output_of(sample, each)
