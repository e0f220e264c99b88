"""Loss and scores for fairseq's ``sentence_prediction`` task.

The scores are those of GLUE (Wang et al. 2018), in percent, over the whole validation set.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.sentence_prediction import (
    SentencePredictionConfig,
    SentencePredictionCriterion,
)
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.settings import refuse_empty
from fairseq_posenc.training.base import Rows, rows_of_all_workers
from fairseq_posenc.training.masked_lm import Recorded


class Score(NamedTuple):
    """A score and its requirements."""

    # returns a fraction, given predictions (N,), targets (N,) and the positive class
    compute: Callable[[np.ndarray, np.ndarray, int], float]
    regression: bool  # whether predictions are numbers, not class indices
    module: Optional[str] = None  # the external module that computes it, if any


def accuracy(predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Fraction of predicted class indices that equal their targets."""
    return float(np.mean(predictions == targets))


def f1(predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Binary F1 of class *positive*, every other class counting as negative."""
    from sklearn.metrics import f1_score

    return f1_score(targets == positive, predictions == positive, zero_division=0)


def mcc(predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Matthews correlation of class indices; 0 if predictions or targets are constant."""
    from sklearn.metrics import matthews_corrcoef

    return 0.0 if _constant(predictions, targets) else matthews_corrcoef(targets, predictions)


def pearson(predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Pearson correlation; 0 if predictions or targets are constant."""
    from scipy.stats import pearsonr

    return 0.0 if _constant(predictions, targets) else pearsonr(predictions, targets)[0]


def spearman(predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Spearman rank correlation; 0 if predictions or targets are constant."""
    from scipy.stats import spearmanr

    return 0.0 if _constant(predictions, targets) else spearmanr(predictions, targets)[0]


def _constant(*sides: np.ndarray) -> bool:
    return any(np.all(side == side[0]) for side in sides)


SCORES = {
    "accuracy": Score(accuracy, False),
    "f1": Score(f1, False, "sklearn.metrics"),
    "mcc": Score(mcc, False, "sklearn.metrics"),
    "pearson": Score(pearson, True, "scipy.stats"),
    "spearman": Score(spearman, True, "scipy.stats"),
}


def percent(name: str, predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Compute a score, in percent with two decimals.

    An undefined score (NaN or constant predictions) is 0, so that checkpoints can be compared.
    """
    if not np.all(np.isfinite(predictions)):
        return 0.0
    value = float(SCORES[name].compute(predictions, targets, positive))
    return round(100 * value, 2) if math.isfinite(value) else 0.0


def check(name: str, regression: bool) -> None:
    """Check, before training, that a score is available."""
    fitting = [key for key in SCORES if SCORES[key].regression == regression]
    if name not in fitting:
        kind = "regression" if regression else "classification"
        wrong = f"is not for {kind}" if name in SCORES else "is unknown"
        raise UsageError(
            f"--metrics {name}: {wrong}; for {kind}, give {', '.join(fitting)} "
            f"(for other scores, train {'without' if regression else 'with'} --regression-target)"
        )
    module = SCORES[name].module
    if module is not None:
        import_extra(module, f"--metrics {name}")


# Entries of a logging output. All are numbers, because the outputs of workers are summed.
_ROWS = "_rows"
_ASKED = "_asked/{}/{}"  # name of a score, positive class

# Flags of fairseq's main branch and of fairseq-fixed.  Their scores fail if labels are text.
_REPORTS = {
    "report_mcc": "mcc",
    "report_acc_and_f1": "accuracy,f1",
    "report_pearson_and_spearman": "pearson,spearman",
}


@dataclass
class SentencePredictionMetricsConfig(SentencePredictionConfig):
    """fairseq's flags for ``sentence_prediction``, and the flags of the scores."""

    metrics: Optional[str] = field(
        default=None,
        metadata={
            "help": f"scores of the validation set, in percent: some of {','.join(SCORES)} "
            "(default: accuracy, or pearson,spearman with --regression-target)"
        },
    )
    positive_label: str = field(
        default="1", metadata={"help": "label whose F1 is computed, spelled as in the data"}
    )


@register_criterion("sentence_prediction_metrics", dataclass=SentencePredictionMetricsConfig)
class SentencePredictionMetricsCriterion(SentencePredictionCriterion):
    """fairseq's ``sentence_prediction``, with scores of the whole validation set.

    The scores are those of GLUE: accuracy, binary F1, Matthews, Pearson and Spearman correlation.
    Each is computed once over all predictions, independent of batches and workers, and logged under
    its name.  To select checkpoints by a score, give, for example, ``--best-checkpoint-metric mcc
    --maximize-best-checkpoint-metric``.  The positive class of F1 is ``--positive-label``, by
    default ``1``, which means "paraphrase" in GLUE's MRPC and QQP.
    """

    def __init__(self, cfg: SentencePredictionMetricsConfig, task: FairseqTask) -> None:
        for name, instead in _REPORTS.items():
            if option(cfg, name, False):
                raise UsageError(
                    f"{flag_of(name)}: belongs to fairseq's --criterion sentence_prediction; "
                    f"with sentence_prediction_metrics give --metrics {instead}"
                )
        super().__init__(cfg, task)
        for name in ("metrics", "positive_label"):
            refuse_empty(name, option(cfg, name))
        asked = cfg.metrics or ("pearson,spearman" if cfg.regression_target else "accuracy")
        self.scores = [name.strip() for name in asked.split(",")]
        for name in self.scores:
            check(name, cfg.regression_target)
        self.positive = 0
        if "f1" in self.scores:
            label, labels = cfg.positive_label, task.label_dictionary
            known = labels.symbols[labels.nspecial :][: task.cfg.num_classes]
            if label not in known:
                raise UsageError(
                    f"--positive-label {label}: the data have the labels {', '.join(known)}; name "
                    "the one whose F1 is wanted, or leave f1 out of --metrics"
                )
            self.positive = known.index(label)

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Compute the loss, and in evaluation log predictions and targets for the scores."""
        if model.training:
            return super().forward(model, sample, reduce)
        recorded = Recorded(model)
        loss, sample_size, logging_output = super().forward(recorded, sample, reduce)
        logits = recorded.output[0]
        targets = model.get_targets(sample, [logits]).view(-1)
        predictions = logits.view(-1) if self.regression_target else logits.argmax(dim=-1)
        rows = torch.stack([predictions.double(), targets.double()], dim=1)
        logging_output[_ROWS] = rows_of_all_workers(rows)
        for name in self.scores:
            logging_output[_ASKED.format(name, self.positive)] = 1
        if "accuracy" in self.scores:
            del logging_output["ncorrect"]  # fairseq would log an accuracy rounded to one decimal
        return loss, sample_size, logging_output

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the loss, and in evaluation the scores of all batches so far."""
        SentencePredictionCriterion.reduce_metrics(logging_outputs)
        for output in logging_outputs:
            if _ROWS in output:
                metrics.log_custom(Rows, _ROWS, output[_ROWS])
        asked = [key.split("/")[1:] for key in logging_outputs[0] if key.startswith("_asked/")]
        for name, positive in asked:
            metrics.log_derived(name, partial(_score, name, int(positive)))


def _score(name: str, positive: int, meters: Dict[str, Any]) -> float:
    predictions, targets = meters[_ROWS].rows().numpy().T
    return percent(name, predictions, targets, positive)
