"""The audit of a disturbed search, on frames made by hand."""

import pandas as pd
import pytest

from tests.harness import faults
from tuneparts.core.errors import UnknownNameError

TRIALS = pd.DataFrame({"trial": ["a/0", "a/1"], "arm": ["a", "a"], "val/nll": [0.5, 0.25]})
STEPS = pd.DataFrame(
    {
        "trial": ["a/0", "a/1"],
        "arm": ["a", "a"],
        "metric": ["x", "x"],
        "step": [1, 1],
        "value": [1.0, 2.0],
    }
)


class FakeScene:
    uri = "nowhere"

    def duplicates(self) -> int:
        return 0


def audit(monkeypatch, trials: pd.DataFrame, steps: pd.DataFrame) -> tuple[int, int, bool]:
    monkeypatch.setattr(faults, "table", lambda scene: (trials, steps))
    monkeypatch.setattr(faults, "_doubled_in_store", lambda uri: 0)
    return faults.audit(FakeScene(), (TRIALS, STEPS))  # type: ignore[arg-type]


def test_what_is_whole_steps(monkeypatch) -> None:
    assert audit(monkeypatch, TRIALS, STEPS) == (0, 0, True)


def test_bad_arms_are_left_out(monkeypatch) -> None:
    bad = pd.DataFrame({"trial": ["b/0"], "arm": ["bad_0"], "val/nll": [9.0], "error": ["why"]})
    assert audit(monkeypatch, pd.concat([bad, TRIALS]), STEPS) == (0, 0, True)


def test_a_lost_trial_a_doubled_point_and_another_number_are_found(monkeypatch) -> None:
    assert audit(monkeypatch, TRIALS[:1], STEPS) == (1, 0, False)
    assert audit(monkeypatch, TRIALS, pd.concat([STEPS, STEPS[:1]])) == (0, 1, False)
    assert audit(monkeypatch, TRIALS.assign(**{"val/nll": [0.5, 0.26]}), STEPS) == (0, 0, False)


def test_a_fault_that_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="second driver"):
        faults.run(only="second drivers")
