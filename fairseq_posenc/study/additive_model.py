"""Scores as effects of systems and of seeds, by least squares.

Runs with the same seed see their data in the same order, so seeds are blocks: a score is the sum of
an effect of its system, an effect of its seed and an error.
"""

from typing import List, Mapping, NamedTuple, Optional

import numpy as np

from fairseq_posenc.basics.packages import import_extra

#: Scores of one measure: by system, then by seed.
Scores = Mapping[str, Mapping[int, float]]


class Estimate(NamedTuple):
    """The difference of two systems.

    Args:
        mean: the difference, as if no run were missing.
        error: its standard error, 0 without degrees of freedom.
        degrees: degrees of freedom of the error.
    """

    mean: float
    error: float
    degrees: int


class AdditiveModel(NamedTuple):
    """The model, fitted to the scores of R runs of N systems.

    Args:
        systems: names, in the order of the first parameters.
        known: (N + seeds, N + seeds), projects contrasts on those that the scores determine.
        kept: indices of the P parameters that are fitted.
        effects: the parameters, (P,).
        covariance: covariance of the parameters, (P, P); zeros without degrees of freedom.
        degrees: degrees of freedom of the error.
        residuals: score minus fitted score of each run, (R,).
        owners: the system of each residual.
        exact: sizes up to this one are sums of rounding errors.
    """

    systems: List[str]
    known: np.ndarray
    kept: List[int]
    effects: np.ndarray
    covariance: np.ndarray
    degrees: int
    residuals: np.ndarray
    owners: List[str]
    exact: float

    def difference(self, first: str, second: str) -> Optional[Estimate]:
        """The first system minus the second.

        Returns:
            None if they have no seed in common, not even by way of other systems.
        """
        contrast = np.zeros(len(self.known))
        contrast[self.systems.index(first)], contrast[self.systems.index(second)] = 1, -1
        if not np.allclose(contrast @ self.known, contrast):
            return None
        contrast = contrast[self.kept]
        mean = float(contrast @ self.effects)
        error = float(contrast @ self.covariance @ contrast) ** 0.5
        mean, error = (value if abs(value) > self.exact else 0.0 for value in (mean, error))
        return Estimate(mean, error, self.degrees)

    def noisy(self) -> Optional[str]:
        """The system with more than half of the squared residuals, in four or more systems."""
        squares = dict.fromkeys(self.systems, 0.0)
        for name, residual in zip(self.owners, self.residuals):
            squares[name] += float(residual) ** 2
        worst = max(squares, key=lambda name: squares[name])
        whole = sum(squares.values())
        dominates = squares[worst] > whole / 2 and whole > self.exact**2
        return worst if dominates and len(squares) >= 4 else None


def fit(scores: Scores) -> AdditiveModel:
    """Fit the model to all scores of a measure.

    Args:
        scores: at least one; runs may be missing.
    """
    systems = list(scores)
    seeds = sorted({seed for found in scores.values() for seed in found})
    rows = [(name, seed, value) for name in systems for seed, value in scores[name].items()]
    design = np.zeros((len(rows), len(systems) + len(seeds)))
    for row, (name, seed, _) in zip(design, rows):
        row[systems.index(name)] = row[len(systems) + seeds.index(seed)] = 1
    values = np.array([value for _, _, value in rows])
    # a constant can move from the systems to the seeds: in each group of runs that share systems
    # or seeds, one seed has no effect of its own
    kept = list(range(len(systems)))
    for column in range(len(systems), design.shape[1]):
        if np.linalg.matrix_rank(design[:, [*kept, column]]) > len(kept):
            kept.append(column)
    reduced = design[:, kept]
    effects = np.linalg.lstsq(reduced, values, rcond=None)[0]
    degrees, covariance = len(rows) - len(kept), np.zeros((len(kept), len(kept)))
    if degrees > 0:
        linear = import_extra("statsmodels.regression.linear_model", "study --report")
        covariance = linear.OLS(values, reduced).fit().cov_params()
    return AdditiveModel(
        systems,
        np.linalg.pinv(design) @ design,
        kept,
        effects,
        covariance,
        degrees,
        values - reduced @ effects,
        [name for name, _, _ in rows],
        1e-9 * float(np.abs(values).max()),
    )
