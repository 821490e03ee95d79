"""The figure of subnetworks, on one small table."""

import pandas as pd
import pytest

from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.figures.partitions import levels, subnetworks
from tuneparts.results.run_data import RunData
from tuneparts.search.card import ArmCard


def _run_data(metadata, **scores) -> RunData:
    rows = [
        {"trial": f"{arm}/{seed}", "arm": arm, "seed": seed, "index": 0, "outcome": "finished"}
        | {"val/accuracy": 0.8}
        | ({name: value + 0.02 * seed for name, value in scores.items()} if arm == "parts" else {})
        for arm in ("parts", "plain")
        for seed in (0, 1)
    ]
    arms = tuple(ArmCard(arm, "partitioned", 1, (0, 1), passes=1) for arm in ("parts", "plain"))
    changed = type(metadata)(**{**metadata.__dict__, "arms": arms})
    return RunData(changed, pd.DataFrame(rows), pd.DataFrame())


def test_a_point_per_subnetwork_and_none_for_their_mean(metadata) -> None:
    scores = {"subnetwork/accuracy.1": 0.7, "subnetwork/accuracy.2": 0.6}
    run_data = _run_data(metadata, **scores, **{"subnetwork/accuracy.mean": 0.9})
    data = levels(run_data)
    assert data["arm"].tolist() == ["parts", "parts"]
    assert data["level"].tolist() == [1, 2]
    assert data["accuracy"].tolist() == pytest.approx([0.71, 0.61])
    drawing = subnetworks(run_data)
    assert isinstance(drawing, Drawing)
    assert len(drawing.figure.data) == 1


def test_a_run_without_subnetworks_has_a_note(metadata) -> None:
    assert isinstance(subnetworks(_run_data(metadata)), Note)
