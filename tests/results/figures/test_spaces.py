"""Figures of spaces and of fronts, from frames with a known answer."""

import math

import numpy as np
import pandas as pd
import pytest

from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.figures.gallery import draw
from tuneparts.results.run_data import RunData
from tuneparts.results.select import _members
from tuneparts.search.card import ArmCard, RunCard
from tuneparts.search.frames import DRAWN_COLUMNS

OBJECTIVES = ("val/accuracy", "size/parameters")


def run_data(num: int = 20, **metadata) -> RunData:
    """Accuracy follows x alone; y and the kind have no effect; size is another matter."""
    rng = np.random.default_rng(0)
    trials, drawn = [], []
    for seed in (0, 1):
        for index in range(num):
            trial = f"a/seed{seed}/{index:05d}"
            x, y, kind = rng.random(), 10 ** rng.uniform(-3, 0), ["sgd", "adam"][index % 2]
            trials.append(
                {"run_id": "", "trial": trial, "arm": "a", "seed": seed, "index": index,
                 "outcome": "finished", "error": "", "val/accuracy": 1 - (x - 0.7) ** 2,
                 "test/accuracy": 0.5, "size/parameters": 1000 * rng.random(), "cost/steps": 10.0}
            )  # fmt: skip
            where = (trial, "a", seed, index)
            drawn += [(*where, 0, "o", kind, False), (*where, 1, "x", x, False)]
            drawn.append((*where, 2, "y", y, True))
            if kind == "sgd":
                drawn.append((*where, 0, "o[sgd].momentum", rng.random(), False))
    told = RunCard("s", "q?", (ArmCard("a", "m", num, (0, 1)),), metric="val/accuracy", **metadata)
    frame = pd.DataFrame(drawn, columns=DRAWN_COLUMNS)
    return RunData(told, pd.DataFrame(trials), pd.DataFrame(), drawn=frame)


def test_importance_is_where_the_effect_is() -> None:
    drawing = draw("importance", run_data())
    shares = drawing.data.set_index("dimension")["share"]
    assert set(shares.index) == {"x", "y", "o"}  # what only one option has is left out
    assert shares["x"] > 0.8
    assert shares.sum() == pytest.approx(1)


def test_parallel_coordinates_have_a_line_per_trial_in_fifths() -> None:
    drawing = draw("parallel", run_data())
    assert [trace.name for trace in drawing.figure.data][-1] == "best fifth"
    assert [trace.x.count(None) for trace in drawing.figure.data] == [8] * 5
    assert drawing.figure.layout.xaxis.ticktext == ("o", "sgd.momentum", "x", "y")
    points = [y for trace in drawing.figure.data for y in trace.y if y is not None]
    assert 0 <= min(points) <= max(points) <= 1
    best = drawing.figure.data[-1]
    x_places = [y for at, y in zip(best.x, best.y, strict=True) if at == 2]
    assert np.ptp(x_places) < 0.4  # near 0.7


def test_slices_have_a_panel_per_dimension_with_its_scale() -> None:
    drawing = draw("slices", run_data())
    assert [trace.x is not None for trace in drawing.figure.data] == [True] * 4
    assert drawing.figure.layout.xaxis.type == "category"
    assert drawing.figure.layout.xaxis4.type == "log"
    assert len(drawing.figure.data[1].x) == 20  # momentum, where it is


def test_a_front_needs_several_objectives() -> None:
    drawing = draw("pareto", run_data())
    assert isinstance(drawing, Note)
    assert "one objective" in drawing.text


def test_of_few_trials_there_is_a_best_one() -> None:
    (best,) = [one for one in draw("parallel", run_data(num=1)).figure.data if one.line.width > 2]
    assert best.x.count(None) == 1


def test_the_front_is_that_of_each_seed_and_its_selected_trials_are_ringed() -> None:
    data = run_data(
        objectives=OBJECTIVES, selection={"kind": "within", "limits": {"val/accuracy": 0}}
    )
    known = _members(data.trials, data.metadata)
    for _, own in known.groupby("seed"):
        points = own[list(OBJECTIVES)].to_numpy() * [1, -1]
        expected = [
            not any((other >= one).all() and (other > one).any() for other in points)
            for one in points
        ]
        assert own["on_front"].tolist() == expected
    drawing = draw("pareto", data)
    assert isinstance(drawing, Drawing)
    rings = [trace for trace in drawing.figure.data if trace.marker.size == 17]
    assert len(rings[0].x) == 2
    assert set(data.selected["trial"]) <= set(known[known["on_front"]]["trial"])
    assert "the best trial by val/accuracy with" in drawing.caption


def test_three_objectives_are_drawn_in_pairs_without_lines() -> None:
    data = run_data(objectives=(*OBJECTIVES, "cost/steps"))
    drawing = draw("pareto", data)
    assert not any(trace.mode == "lines" for trace in drawing.figure.data)
    assert drawing.figure.layout.xaxis2.title.text is not None


def test_a_trial_without_an_objective_is_counted_and_left_out() -> None:
    data = run_data(objectives=OBJECTIVES)
    trials = data.trials.copy()
    trials.loc[0, "size/parameters"] = math.nan
    again = RunData(data.metadata, trials, pd.DataFrame())
    assert "1 finished trials lack an objective" in draw("pareto", again).caption
