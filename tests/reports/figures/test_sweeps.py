from dataclasses import replace

import numpy as np
import pytest

from tuneparts.reports.evidence import Evidence
from tuneparts.reports.figures.drawing import Note
from tuneparts.reports.figures.sweeps import heat_map, sweep


@pytest.fixture
def evidence(trials, steps, outline):
    # MLflow keeps params as text.
    trials["param.width"] = [str(8 * (1 + i % 3)) for i in range(len(trials))]
    trials["param.kind"] = ["a" if i % 2 else "b" for i in range(len(trials))]
    return Evidence(outline, trials, steps)


def test_sweep_by_hand(evidence):
    drawing = sweep(evidence, "param.width")
    own = evidence.trials
    own = own[(own["arm"] == "random") & (own["outcome"] == "finished")]
    scores = own[own["param.width"] == "16"]["test/accuracy"].to_numpy()
    found = drawing.data.query("arm == 'random' and `param.width` == 16").iloc[0]
    assert found["mean"] == pytest.approx(scores.mean())
    assert found["se"] == pytest.approx(scores.std(ddof=1) / np.sqrt(len(scores)))
    assert list(drawing.figure.data[1].x) == [8.0, 16.0, 24.0]
    assert drawing.figure.layout.xaxis.type == "linear"


def test_words_are_categories(evidence):
    assert sweep(evidence, "param.kind").figure.layout.xaxis.type == "category"


def test_heat_map_by_hand(evidence):
    drawing = heat_map(evidence, "param.width", "param.kind")
    own = evidence.trials[evidence.trials["outcome"] == "finished"]
    cell = own[(own["param.width"] == "24") & (own["param.kind"] == "b")]["test/accuracy"]
    heat = drawing.figure.data[0]
    assert heat.z[heat.y.index("b")][heat.x.index("24")] == pytest.approx(cell.mean())
    assert drawing.data["count"].sum() == len(own)


def test_missing_columns_give_notes(evidence):
    assert isinstance(sweep(evidence, "param.nothing"), Note)
    assert isinstance(heat_map(evidence, "param.width", "param.nothing"), Note)


def test_settings_that_are_lists_become_labels(evidence):
    trials = evidence.trials.copy()
    shares = [[0.8, 0.1, 0.1], [1 / 3, 1 / 3, 1 / 3]]
    trials["param.u"] = [shares[i % 2] for i in range(len(trials))]
    trials["param.v"] = [shares[i // 2 % 2] for i in range(len(trials))]
    drawn = heat_map(
        replace(evidence, trials=trials), "param.u", "param.v", "test/accuracy", "random"
    )
    assert set(drawn.data["param.u"]) <= {"0.8, 0.1, 0.1", "0.33, 0.33, 0.33"}
    finished = trials[(trials["outcome"] == "finished") & (trials["arm"] == "random")]
    assert drawn.data["count"].sum() == len(finished.dropna(subset=["test/accuracy"]))
