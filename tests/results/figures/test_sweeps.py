from dataclasses import replace

import numpy as np
import pytest

from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.figures.sweeps import heat_map, sweep, tasks
from tuneparts.results.run_data import RunData


@pytest.fixture
def run_data(trials, steps, metadata):
    # MLflow keeps params as text.
    trials["param.width"] = [str(8 * (1 + i % 3)) for i in range(len(trials))]
    trials["param.kind"] = ["a" if i % 2 else "b" for i in range(len(trials))]
    return RunData(metadata, trials, steps)


def test_sweep_by_hand(run_data):
    drawing = sweep(run_data, "param.width")
    own = run_data.trials
    own = own[(own["arm"] == "random") & (own["outcome"] == "finished")]
    scores = own[own["param.width"] == "16"]["test/accuracy"].to_numpy()
    found = drawing.data.query("arm == 'random' and `param.width` == 16").iloc[0]
    assert found["mean"] == pytest.approx(scores.mean())
    assert found["se"] == pytest.approx(scores.std(ddof=1) / np.sqrt(len(scores)))
    assert list(drawing.figure.data[1].x) == [8.0, 16.0, 24.0]
    assert drawing.figure.layout.xaxis.type == "linear"


def test_words_are_categories(run_data):
    assert sweep(run_data, "param.kind").figure.layout.xaxis.type == "category"


def test_heat_map_by_hand(run_data):
    drawing = heat_map(run_data, "param.width", "param.kind")
    own = run_data.trials[run_data.trials["outcome"] == "finished"]
    cell = own[(own["param.width"] == "24") & (own["param.kind"] == "b")]["test/accuracy"]
    heat = drawing.figure.data[0]
    assert heat.z[heat.y.index("b")][heat.x.index("24")] == pytest.approx(cell.mean())
    assert drawing.data["count"].sum() == len(own)


def test_missing_columns_give_notes(run_data):
    assert isinstance(sweep(run_data, "param.nothing"), Note)
    assert isinstance(heat_map(run_data, "param.width", "param.nothing"), Note)


def test_settings_that_are_lists_become_labels(run_data):
    trials = run_data.trials.copy()
    shares = [[0.8, 0.1, 0.1], [1 / 3, 1 / 3, 1 / 3]]
    trials["param.u"] = [shares[i % 2] for i in range(len(trials))]
    trials["param.v"] = [shares[i // 2 % 2] for i in range(len(trials))]
    drawn = heat_map(
        replace(run_data, trials=trials), "param.u", "param.v", "test/accuracy", "random"
    )
    assert set(drawn.data["param.u"]) <= {"0.8, 0.1, 0.1", "0.33, 0.33, 0.33"}
    finished = trials[(trials["outcome"] == "finished") & (trials["arm"] == "random")]
    assert drawn.data["count"].sum() == len(finished.dropna(subset=["test/accuracy"]))


@pytest.fixture
def run_of(scored):
    return lambda **scores: scored({arm: {0: s, 1: s + 0.02} for arm, s in scores.items()})


def lines(drawing: Drawing) -> dict[str, tuple[list, list]]:
    return {
        line.name: (list(line.x), [round(y, 9) for y in line.y]) for line in drawing.figure.data
    }


def test_sizes_lie_in_order_on_an_axis_of_numbers(run_of) -> None:
    runs = {2000: run_of(a=0.7, b=0.6), 500: run_of(a=0.5, b=0.2), 8000: run_of(a=0.9)}
    drawing = tasks(runs, "num_train", "test/accuracy")
    assert lines(drawing) == {
        "a": ([500, 2000, 8000], [0.51, 0.71, 0.91]),
        "b": ([500, 2000], [0.21, 0.61]),
    }
    assert drawing.figure.layout.xaxis.type == "log"
    assert drawing.figure.data[0].error_y.array[0] == pytest.approx(0.01)


def test_names_are_categories_in_the_order_given(run_of) -> None:
    drawing = tasks({"y": run_of(a=0.5), "x": run_of(a=0.7)}, "run", "test/accuracy")
    assert lines(drawing)["a"][0] == ["y", "x"]
    assert drawing.figure.layout.xaxis.type == "category"
