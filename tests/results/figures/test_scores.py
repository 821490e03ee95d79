"""Final scores by arm, by setting and at equal size, from frames with a known answer."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.figures.scores import (
    CALIBRATION_METRICS,
    _gains,
    calibration,
    heat_map,
    scores,
    sweep,
    tasks,
)
from tuneparts.results.run_data import RunData


def test_intervals_are_students_and_the_best_is_on_top(trials, steps, metadata):
    run_data = RunData(metadata, trials, steps)
    drawing = scores(run_data)
    chosen = run_data.selected
    for row in drawing.data.to_dict("records"):
        values = chosen[chosen["arm"] == row["arm"]]["test/accuracy"].to_numpy(dtype=float)
        low, high = stats.t.interval(0.95, 2, values.mean(), values.std(ddof=1) / np.sqrt(3))
        assert (row["low"], row["high"]) == pytest.approx((low, high))
    means = [trace.x[0] for trace in drawing.figure.data if trace.error_x.array is not None]
    assert means == sorted(means)  # plotly draws the last category on top
    alone = scores(RunData(metadata, trials[trials["seed"] == 0], steps))
    assert alone.data["low"].isna().all()


def test_smaller_scores_are_on_top_where_smaller_is_better(trials, steps, metadata):
    drawing = scores(RunData(metadata, trials, steps), "test/nll")
    means = [trace.x[0] for trace in drawing.figure.data if trace.error_x.array is not None]
    assert means == sorted(means, reverse=True)


def test_marks_are_the_seeds_and_their_mean(trials, steps, metadata):
    run_data = RunData(metadata, trials, steps)
    drawing = calibration(run_data)
    traces = {(t.xaxis, t.y[0], len(t.x)): t for t in drawing.figure.data}
    for panel, metric in enumerate(CALIBRATION_METRICS, start=1):
        axis = "x" if panel == 1 else f"x{panel}"
        for arm in metadata.arms:
            chosen = run_data.selected
            values = chosen[chosen["arm"] == arm.name][metric].to_numpy()
            assert list(traces[axis, arm.name, 3].x) == values.tolist()
            mean = traces[axis, arm.name, 1]
            assert mean.x[0] == pytest.approx(values.mean())
            assert mean.error_x.array[0] == pytest.approx(values.std(ddof=1) / np.sqrt(3))
    assert len(drawing.data) == 3 * 4 * 3
    names = [drawing.figure.layout[f"yaxis{n}"].showticklabels for n in ("", 2, 3)]
    assert names == [True, False, True]  # long names would run into the panel at the left


def test_only_what_was_reported_has_a_panel(trials, steps, metadata):
    bare = trials.drop(columns=["test/ece", "test/brier"])
    drawing = calibration(RunData(metadata, bare, steps))
    assert set(drawing.data["metric"]) == {"test/nll"}


def test_two_seeds_do_not_stretch_the_axis_of_scores(frames, metadata):
    trials = frames[0][frames[0]["seed"] < 2]
    arms = tuple(replace(arm, seeds=(0, 1)) for arm in metadata.arms)
    figure = scores(RunData(replace(metadata, arms=arms), trials, frames[1])).figure
    low, high = figure.layout.xaxis.range
    known = trials["test/accuracy"].dropna()
    assert low >= 0
    assert high <= 1.02
    assert high - low <= 4 * (known.max() - known.min())
    least, most = 0, 1
    for trace in figure.data[1::2]:
        assert least <= trace.x[0] - trace.error_x.arrayminus[0]
        assert trace.x[0] + trace.error_x.array[0] <= most


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


def rows(name: str, seed: int, *points: tuple[float, float]) -> list[dict[str, object]]:
    return [
        {"family": name, "arm": f"{name}_{n}", "seed": seed, "size": size, "score": score}
        for n, (size, score) in enumerate(points)
    ]


def test_gains_are_those_of_lines_drawn_by_hand() -> None:
    points = pd.DataFrame(
        [
            *rows("ours", 0, (3.0, 0.80), (9.0, 0.9)),
            *rows("ours", 1, (3.2, 0.70), (9.0, 0.9)),
            *rows("other", 0, (4.0, 0.82), (2.0, 0.60)),  # 0.71 at 3
            *rows("other", 1, (2.0, 0.50), (4.0, 0.75)),  # 0.65 at 3.2
            *rows("small", 0, (1.0, 0.4), (2.0, 0.5)),
        ]
    )
    found = _gains(points, "ours")
    # Nothing of the other families reaches 9 bits, and `small` not even 3.
    assert found["family"].tolist() == ["other"]
    row = found.iloc[0]
    assert row["at"] == pytest.approx(3.1)
    assert row["gain"] == pytest.approx((0.09 + 0.05) / 2)
    assert row["low"] < row["gain"] < row["high"]
    assert row["seeds"] == 2
