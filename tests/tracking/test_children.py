import dataclasses
import math
from collections.abc import Callable

import pytest

from tuneparts.journal import Event, Row, TrialId
from tuneparts.tracking import children, store
from tuneparts.tracking.tracker import Tracker

pytestmark = pytest.mark.mlflow


def plain(found: list[children.Child]) -> list[tuple[object, ...]]:
    """Comparable: NaN equals itself here."""
    rows = []
    for child in sorted(found, key=lambda one: one.run_id):
        facts = dataclasses.asdict(child)
        numbers = {
            name: "nan" if math.isnan(value) else value for name, value in child.metrics.items()
        }
        rows.append(tuple({**facts, "metrics": numbers}.values()))
    return rows


def test_one_query_tells_what_the_client_tells(
    uri: str, make_tracker: Callable[[], Tracker], events: list[Event]
) -> None:
    tracker = make_tracker()
    lost = Row(TrialId("random", 0, 0), 30, {"train/loss": math.inf}, 104.2)
    for event in [*events[:-1], lost, *events[-1:]]:
        tracker.on_event(event)
    assert tracker.close() == []
    parent = str(tracker.parent_run_id)
    client = store.client(uri)
    gone = children.read(uri, parent)[0]
    client.create_run("0", tags={"mlflow.parentRunId": parent})  # a child that is no trial

    slow = [children._from_entity(run) for run in children._from_client(uri, parent)]
    fast = children.read(uri, parent)
    assert len(fast) == 3
    assert plain(fast) == plain(slow)
    assert any(math.isinf(child.metrics.get("train/loss", 0.0)) for child in fast)
    assert all(not child.params for child in children.read(uri, parent, params=False))

    client.delete_run(gone.run_id)
    left = {child.run_id for child in children.read(uri, parent)}
    assert left == {child.run_id for child in fast} - {gone.run_id}
