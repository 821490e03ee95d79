"""Population-based bandits (Parker-Holder et al. 2020): PBT with a Gaussian process."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tuneparts.search import draws
from tuneparts.search.algorithms.pbt import Pbt, Round
from tuneparts.search.space import Dimension, Value

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.spec import Arm

_NUM_CANDIDATES = 500
_MOST_ROWS = 500
"""Of the newest rounds; a fit takes time with the cube of them."""


class Pb2(Pbt):
    """A population whose members take values by an upper confidence bound, and weights by copying.

    What a round gained in score is a function of the values that it ran with and of time, modelled
    by a Gaussian process whose past counts less and less. Whoever copies takes the values where the
    bound on the next gain is highest; members that choose at the same time keep apart. Values
    without order (choices) are varied as in `Pbt`, and so is everything while fewer than two rounds
    are over.
    """

    def varied(
        self,
        arm: "Arm",
        copied: Mapping[int, Mapping[str, Value]],
        rounds: Sequence[Round],
        rng: np.random.Generator,
    ) -> dict[int, dict[str, Value]]:
        found = super().varied(arm, copied, rounds, rng)
        scales = numeric(arm.space)
        rows, gains = gained(rounds, scales)
        if not scales or len(gains) < 2:
            return found
        drawn = [{p: arm.space[p].sample(rng) for p in scales} for _ in range(_NUM_CANDIDATES)]
        candidates = np.array([[float(len(rounds)), *units(one, scales)] for one in drawn])
        chosen = highest_bounds(rows, gains, candidates, len(found))
        wanted = {i: {**found[i], **drawn[k]} for i, k in zip(found, chosen, strict=True)}
        return {i: one if draws.allows(arm, one) else found[i] for i, one in wanted.items()}


def numeric(space: Mapping[str, Dimension]) -> dict[str, Any]:
    """The dimensions of numbers: path -> Optuna's distribution, which has bounds and a scale."""
    from optuna.distributions import CategoricalDistribution

    found = {
        path: dim.distribution()
        for path, dim in space.items()
        if type(dim).distribution is not Dimension.distribution
        and type(dim).encoded is Dimension.encoded  # one whose values are those of Optuna
    }
    return {path: of for path, of in found.items() if not isinstance(of, CategoricalDistribution)}


def units(values: Mapping[str, Value], scales: Mapping[str, Any]) -> list[float]:
    """Where values lie between the bounds of their dimensions: 0 to 1, by logarithm where it is so.

    Example:
        >>> from tuneparts.search.space import Uniform
        >>> scales = numeric({"lr": Uniform(low=0.01, high=1.0, log=True)})
        >>> units({"lr": 0.1}, scales)
        [0.5]
    """
    found = []
    for path, of in scales.items():
        value, low, high = (float(v) for v in (values[path], of.low, of.high))
        if of.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        found.append((value - low) / (high - low) if high > low else 0.0)
    return found


def gained(
    rounds: Sequence[Round], scales: Mapping[str, Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What each round of each member gained over the score of the weights that it began with.

    Returns:
        Rows of (round, values between 0 and 1), and the gain of each; larger is better.
    """
    rows, gains = [], []
    for number in range(1, len(rounds)):
        before, now = rounds[number - 1], rounds[number]
        for i, reward in now.rewards.items():
            gain = reward - before.rewards[now.donors.get(i, i)]
            if math.isfinite(gain):
                rows.append([float(number), *units(now.values[i], scales)])
                gains.append(gain)
    return np.array(rows[-_MOST_ROWS:]), np.array(gains[-_MOST_ROWS:])


def highest_bounds(
    rows: NDArray[np.float64],
    gains: NDArray[np.float64],
    candidates: NDArray[np.float64],
    count: int,
) -> list[int]:
    """Choose candidates by the upper confidence bound of their gain (Parker-Holder et al. 2020).

    The kernel is a squared exponential over values times exp(-|t - t'| / l), which is their
    (1 - eps) to the power of |t - t'| / 2, over rounds. A candidate that was chosen counts as seen
    at its expected gain: that lowers the deviation around it, and leaves the mean alone.

    Args:
        rows: round and values of what was seen.
        gains: of the rows.
        candidates: rows to choose from.
        count: how many to choose.

    Returns:
        Which candidates, in the order of choice.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, Matern, WhiteKernel
    from threadpoolctl import threadpool_limits  # of scikit-learn

    dims, off = rows.shape[1] - 1, 1e6  # a length that takes a column out of a kernel
    of_values = RBF([off, *[0.3] * dims], [(off, off), *[(0.05, 3.0)] * dims])
    of_time = Matern([5.0, *[off] * dims], [(0.5, 50.0), *[(off, off)] * dims], nu=0.5)
    y = (gains - gains.mean()) / (float(np.std(gains)) or 1.0)
    width = math.sqrt(0.2 + math.log(max(1.0, 0.4 * len(gains))))
    model = GaussianProcessRegressor(of_values * of_time + WhiteKernel(0.1, (1e-4, 1.0)))
    chosen: list[int] = []
    # One thread: what is decided must not depend on how many cores there are.
    with warnings.catch_warnings(), threadpool_limits(1):
        # A length at its bound says that a value does not matter, which is no problem here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows, y)
        for _ in range(count):
            mean, deviation = model.predict(candidates, return_std=True)
            chosen.append(int(np.argmax(mean + width * deviation)))
            rows, y = np.vstack([rows, candidates[chosen[-1]]]), np.append(y, mean[chosen[-1]])
            model = GaussianProcessRegressor(model.kernel_, optimizer=None).fit(rows, y)
    return chosen
