"""One number for the scores of a system on several tasks, with its uncertainty.

Agarwal et al. 2021, Deep reinforcement learning at the edge of the statistical precipice, arXiv
2108.13264: the interquartile mean of all runs on all tasks, and its stratified bootstrap interval.
"""

from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_posenc.study.statistics import CONFIDENCE

RESAMPLES = 10_000
_CUT = 0.25  # the part of the scores left out at either end


class Aggregate(NamedTuple):
    """The scores of one system on all tasks, with all seeds."""

    value: float  # the interquartile mean
    interval: Optional[Tuple[float, float]]  # the 95 % interval; None with one seed


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of the scores.

    Args:
        scores: (…, N); the lowest N / 4 and the highest N / 4, rounded down, are left out.

    Returns:
        (…).
    """
    left_out = int(_CUT * scores.shape[-1])
    middle = np.sort(scores, axis=-1)[..., left_out : scores.shape[-1] - left_out]
    return np.asarray(middle.mean(axis=-1))


def aggregate(runs: Sequence[Sequence[float]]) -> Aggregate:
    """The interquartile mean of a system over tasks and seeds.

    The interval lies between percentiles of resampled means: each resample draws, for each task
    alone, as many seeds as there are, with replacement.  The same scores give the same interval.

    Args:
        runs: for each seed, a score for each task.
    """
    scores = np.asarray(runs, dtype=float)  # (seeds, tasks)
    seeds, tasks = scores.shape
    value = float(interquartile_mean(scores.ravel()))
    if seeds < 2:
        return Aggregate(value, None)
    drawn = np.random.default_rng(0).integers(0, seeds, (RESAMPLES, seeds, tasks))
    samples = np.take_along_axis(scores[None], drawn, axis=1)  # (resamples, seeds, tasks)
    means = interquartile_mean(samples.reshape(RESAMPLES, -1))
    rest = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(means, (rest, 100 - rest))
    return Aggregate(value, (float(low), float(high)))
