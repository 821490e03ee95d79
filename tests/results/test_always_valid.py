"""Looking after every replicate: how often the sequence is wrong, and whether it ever decides."""

import math

import numpy as np
import pytest

from tuneparts.core.errors import ConfigError
from tuneparts.results.compare import confidence_sequence, decide

AT_MOST, SIMULATIONS = 20, 800


def looked(mean: float, deviation: float = 1.0, *, within: float | None = None, seed: int = 0):
    """Verdict of each simulated run that is stopped as soon as it is decided."""
    rng = np.random.default_rng(seed)
    found = []
    for values in rng.normal(mean, deviation, (SIMULATIONS, AT_MOST)):
        verdicts = (
            decide(values[:n].tolist(), within=within).verdict for n in range(3, AT_MOST + 1)
        )
        found.append(next((verdict for verdict in verdicts if verdict), ""))
    return found


def test_false_alarms_stay_below_five_per_cent_however_often_one_looks() -> None:
    alarms = sum(map(bool, looked(0.0)))
    assert alarms / SIMULATIONS <= 0.05
    assert alarms > 0  # it is not valid for being silent


def test_a_students_interval_would_not_have_been() -> None:
    from scipy import stats

    values = np.random.default_rng(0).normal(0, 1, (SIMULATIONS, AT_MOST))
    n = np.arange(1, AT_MOST + 1)
    means = values.cumsum(axis=1) / n
    variance = ((values**2).cumsum(axis=1) - n * means**2)[:, 2:] / (n[2:] - 1)
    t = np.abs(means[:, 2:]) / np.sqrt(variance / n[2:])
    assert (t > stats.t.ppf(0.975, n[2:] - 1)).any(axis=1).mean() > 0.15


def test_arms_at_the_margin_are_rarely_called_equivalent() -> None:
    called = looked(0.005, 0.003, within=0.005).count("equivalent")
    assert called / SIMULATIONS <= 0.05


def test_clear_cases_are_decided() -> None:
    assert looked(2.0).count("better") / SIMULATIONS > 0.9
    assert looked(0.0, 0.001, within=0.005).count("equivalent") / SIMULATIONS > 0.9


def test_the_closed_form_is_where_the_e_process_reaches_its_bound() -> None:
    values = [0.3, 0.1, 0.4, 0.2, 0.35, 0.15, 0.3]
    interval, n = confidence_sequence(values), len(values)
    se = np.std(values, ddof=1) / math.sqrt(n)
    t = (np.mean(values) - interval.low) / se
    spread = 1 + n
    ratio = (1 + t**2 / (n - 1)) / (1 + t**2 / (spread * (n - 1)))
    assert spread**-0.5 * ratio ** (n / 2) == pytest.approx(20)


def test_few_values_say_nothing_and_a_margin_is_positive() -> None:
    assert confidence_sequence([0.1, 0.1001]).low == -math.inf
    assert decide([0.1]).verdict == ""
    assert decide([0.1, 0.11, 0.1, 0.12, 0.1, 0.11], is_up=False).verdict == "worse"
    with pytest.raises(ConfigError, match="above 0"):
        decide([0.1, 0.2], within=0.0)
