import pytest

from tuneparts.bench.scale import Meter, Reading, growth, table
from tuneparts.journal import Row, TrialEnded, TrialId


def readings(cost: float) -> list[Reading]:
    """A driver whose time and memory go with the trials to this power."""
    counts = [100 * n for n in range(11)]
    return [Reading(n, float(n**cost), float(n**cost), int(1e6 + 1e3 * n**cost)) for n in counts]


def test_linear_growth_is_one_and_quadratic_is_more() -> None:
    assert set(growth(readings(1.0)).values()) == {1.0}
    assert all(value > 1.5 for value in growth(readings(2.0)).values())


def test_rows_tell_what_the_trials_since_the_last_look_took() -> None:
    rows = table(readings(1.0))
    assert [row["finished"] for row in rows] == list(range(100, 1001, 100))
    assert {row["KB per trial"] for row in rows} == {1.0}
    assert rows[3]["trials per s"] == pytest.approx(1.0)


def test_a_meter_looks_ten_times() -> None:
    meter = Meter(50)
    for index in range(50):
        trial = TrialId("a", 0, index)
        meter.on_event(Row(trial, 1, {}, 0.0))
        meter.on_event(TrialEnded(trial, "finished", 0.0))
    assert [reading.finished for reading in meter.readings] == list(range(0, 51, 5))
    assert all(reading.memory > 1e6 for reading in meter.readings)
