"""GLUE scores (Wang et al. 2018) of whole sets of predictions, in percent and never NaN."""

import math
from typing import Callable, NamedTuple, Optional

import numpy as np

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra


class Score(NamedTuple):
    """A score and its requirements."""

    # from predictions (N,), targets (N,) and the positive class to a fraction
    compute: Callable[[np.ndarray, np.ndarray, int], float]
    regression: bool  # whether predictions are numbers, not class indices
    module: Optional[str] = None  # the external module that computes it, if any


def accuracy(predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Fraction of equal class indices."""
    return float(np.mean(predictions == targets))


def f1(predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Binary F1 of class *positive*, every other class counting as negative."""
    from sklearn.metrics import f1_score

    return f1_score(targets == positive, predictions == positive, zero_division=0)


def mcc(predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Matthews correlation of class indices; 0 if either side is constant."""
    from sklearn.metrics import matthews_corrcoef

    return 0.0 if _constant(predictions, targets) else matthews_corrcoef(targets, predictions)


def pearson(predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Pearson correlation; 0 if either side is constant."""
    from scipy.stats import pearsonr

    return 0.0 if _constant(predictions, targets) else pearsonr(predictions, targets)[0]


def spearman(predictions: np.ndarray, targets: np.ndarray, positive: int) -> float:
    """Spearman rank correlation; 0 if either side is constant."""
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
            f"--metrics {name}: {wrong}; for {kind} there are {', '.join(fitting)} "
            f"(others {'without' if regression else 'with'} --regression-target)"
        )
    module = SCORES[name].module
    if module is not None:
        import_extra(module, f"--metrics {name}")
