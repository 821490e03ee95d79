import math

from tuneparts.core.schema import lookup
from tuneparts.search.events import Event, Row, TrialEnded, TrialId, TrialRetried, TrialVoided
from tuneparts.search.state import RunState
from tuneparts.tracking._trial_run import ParentRun


def trial(arm: str, seed: int, index: int, score: float, outcome: str = "finished") -> list[Event]:
    one = TrialId(arm, seed, index)
    metrics = {"val/nll": score, "test/nll": -9.0, "cost/steps": 10.0, "cost/seconds": 2.5}
    return [
        Row(one, 5, {"val/nll": 99.0, "cost/steps": 5.0, "cost/seconds": 1.0}, 1.0),
        Row(one, 10, metrics, 2.0),
        TrialEnded(one, outcome, 3.0),  # type: ignore[arg-type]
    ]


def folded(*events: Event, tally: ParentRun | None = None) -> ParentRun:
    tally, state = tally or ParentRun(metric=lookup("val/nll")), RunState(keep_rows=False)
    for event in events:
        assert state.apply(event)
        tally.take(event, state)
    return tally


def test_an_arm_has_the_mean_over_seeds_of_its_best_trial() -> None:
    tally = folded(
        *trial("random", 0, 0, 0.5),
        *trial("random", 0, 1, 0.25),
        *trial("random", 1, 0, 0.75),
        *trial("asha", 0, 0, 0.625),
        *trial("asha", 0, 1, 0.125, "stopped"),  # only finished trials are selected from
        *trial("asha", 0, 2, math.nan),
        *trial("none", 0, 0, 1.0, "failed"),
    )
    assert tally.numbers == {
        "trials/finished": 5.0,
        "trials/stopped": 1.0,
        "trials/failed": 1.0,
        "cost/steps": 70.0,
        "cost/seconds": 17.5,
        "arm/random/val/nll": 0.5,
        "arm/asha/val/nll": 0.625,
        "best/val/nll": 0.5,
    }


def test_points_tell_of_changes_alone_and_count_ended_trials() -> None:
    events = [*trial("random", 0, 0, 0.5), *trial("random", 0, 1, 0.75)]
    points = list(folded(*events).points)
    best = [point for point in points if point[0] == "best/val/nll"]
    assert best == [("best/val/nll", 0.5, 3000, 1)]
    assert [step for name, _, _, step in points if name == "cost/steps"] == [1, 2]


def test_without_a_metric_there_are_counts_and_costs() -> None:
    failed = TrialEnded(TrialId("a", 0, 1), "failed", 4.0)
    tally = folded(*trial("a", 0, 0, 0.5), failed, tally=ParentRun())
    assert set(tally.numbers) == {"trials/finished", "trials/failed", "cost/steps", "cost/seconds"}


def test_a_failed_trial_that_is_tried_again_counts_once() -> None:
    events = trial("random", 0, 0, 0.5, "failed")
    assert folded(*events).numbers["trials/failed"] == 1.0
    events += [TrialRetried(TrialId("random", 0, 0), 4.0)]
    tally = folded(*events)
    assert ("trials/failed", 0.0, 4000, 1) in tally.points
    assert tally.numbers["cost/steps"] == 0.0
    events += [TrialEnded(TrialId("random", 0, 0), "finished", 5.0)]
    assert folded(*events).numbers == {
        "trials/failed": 0.0,
        "trials/finished": 1.0,
        "cost/steps": 10.0,
        "cost/seconds": 2.5,
        "arm/random/val/nll": 0.5,
        "best/val/nll": 0.5,
    }


def test_a_voided_trial_counts_as_stopped_and_its_cost_stays() -> None:
    void = TrialVoided(TrialId("random", 0, 0), 9.0, "why")
    events = [*trial("random", 0, 0, 0.25), *trial("random", 0, 1, 0.5)]
    assert folded(*events, void).numbers == {
        "trials/finished": 1.0,
        "trials/stopped": 1.0,
        "cost/steps": 20.0,
        "cost/seconds": 5.0,
        "arm/random/val/nll": 0.5,
        "best/val/nll": 0.5,
    }
    again = [TrialRetried(TrialId("a", 0, 0), 4.0), TrialVoided(TrialId("a", 0, 0), 5.0, "why")]
    found = folded(*trial("a", 0, 0, 0.5, "failed"), *again).numbers
    assert (found["trials/failed"], found["trials/stopped"], found["cost/steps"]) == (0, 1, 10)
