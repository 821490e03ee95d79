"""The figures of methods with several members, on one small table."""

import pandas as pd
import pytest

from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.figures.members import (
    anytime,
    interpolation,
    membership,
    memberships,
    points,
)
from tuneparts.results.run_data import RunData
from tuneparts.search.card import ArmCard

ARMS = ("shared", "plain")


NLL = {"0": 0.5, "1": 0.4, "0_1": 0.45}
"""By validation data the second member is the best buy, whatever test data says."""


@pytest.fixture
def run_data(metadata) -> RunData:
    rows = []
    for arm in ARMS:
        for seed in (0, 1):
            row = {
                "trial": f"{arm}/{seed}",
                "arm": arm,
                "seed": seed,
                "index": 0,
                "outcome": "finished",
                "val/accuracy": 0.8,
                "anytime/accuracy.0": 0.7 + 0.02 * seed,
                "anytime/flops.0": 100.0,
                "anytime/accuracy.1": 0.6,
                "anytime/flops.1": 200.0,
                "anytime/accuracy.0_1": 0.9,
                "anytime/flops.0_1": 300.0,
            }
            if arm == "shared":
                row |= {f"anytime/val_nll.{k}": v for k, v in NLL.items()}
            if arm == "shared":
                row |= {f"superweights/cluster.{m}_{k}": float(k % 2) for m, k in CLUSTERS}
                row |= {f"interpolation/accuracy.{i}": 0.5 + 0.1 * seed for i in range(11)}
            rows.append(row)
    arms = tuple(ArmCard(arm, "superweights", 1, (0, 1), passes=1) for arm in ARMS)
    changed = type(metadata)(**{**metadata.__dict__, "arms": arms})
    return RunData(changed, pd.DataFrame(rows), pd.DataFrame())


CLUSTERS = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_operating_points_and_their_frontier(run_data) -> None:
    data = points(run_data)
    own = data[data["arm"] == "shared"].reset_index(drop=True)
    assert own["members"].tolist() == ["0", "1", "0 + 1"]
    assert own["accuracy"].tolist() == pytest.approx([0.71, 0.6, 0.9])
    assert own["is_best"].tolist() == [True, True, False]
    blind = data[data["arm"] != "shared"]
    assert len(blind) == 3
    assert not blind["is_best"].any()
    drawing = anytime(run_data)
    assert isinstance(drawing, Drawing)
    assert list(drawing.figure.data[0].x) == [100.0, 200.0]
    assert list(drawing.figure.data[1].x) == [300.0]


def test_the_cluster_of_each_layer(run_data) -> None:
    data = memberships(run_data)
    assert len(data) == 2 * len(CLUSTERS)
    drawing = membership(run_data)
    assert isinstance(drawing, Drawing)
    (heat,) = drawing.figure.data
    assert heat.z[0] == [0.0, 1.0, 0.0]
    assert heat.y == ("member 0", "member 1")


def test_the_line_between_two_members_has_its_places_in_order(run_data) -> None:
    drawing = interpolation(run_data)
    assert isinstance(drawing, Drawing)
    (line,) = drawing.figure.data
    assert list(line.x) == pytest.approx([i / 10 for i in range(11)])
    assert list(line.y) == pytest.approx([0.55] * 11)


@pytest.mark.parametrize("figure", [anytime, membership, interpolation])
def test_a_note_where_nothing_was_measured(figure, trials, steps, metadata) -> None:
    assert isinstance(figure(RunData(metadata, trials, steps)), Note)
