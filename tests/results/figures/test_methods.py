"""Figures of what one kind of method reports, on small tables."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tuneparts.core.errors import ConfigError
from tuneparts.results.figures._methods import MAX_LAYERS, communication, deviations, rounds, sent
from tuneparts.results.figures.drawing import Note
from tuneparts.results.figures.gallery import draw
from tuneparts.results.page import _page
from tuneparts.results.run_data import RunData
from tuneparts.search.card import ArmCard

CLUSTERS = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
REPORTED = {
    "subnetwork/accuracy.1": 0.7, "subnetwork/accuracy.2": 0.6, "subnetwork/accuracy.mean": 0.9,
    **{f"interpolation/accuracy.{i}": 0.5 for i in range(11)},
}  # fmt: skip
POINTS = {"0": (0.7, 100.0, 0.5), "1": (0.6, 200.0, 0.4), "0_1": (0.9, 300.0, 0.45)}
"""Accuracy, operations, validation loss: by validation the second member is the best buy."""


@pytest.fixture
def members(metadata) -> RunData:
    """Two arms and seeds; `shared` reports everything, `plain` operating points only."""
    rows = []
    for arm in ("shared", "plain"):
        for seed in (0, 1):
            row = {"trial": f"{arm}/{seed}", "arm": arm, "seed": seed, "index": 0}
            row |= {"outcome": "finished", "val/accuracy": 0.8}
            for name, (accuracy, flops, nll) in POINTS.items():
                row |= {f"anytime/accuracy.{name}": accuracy, f"anytime/flops.{name}": flops}
                if arm == "shared":
                    row[f"anytime/val_nll.{name}"] = nll
            if arm == "shared":
                row |= {f"superweights/cluster.{m}_{k}": float(k % 2) for m, k in CLUSTERS}
                row |= {name: value + 0.02 * seed for name, value in REPORTED.items()}
            rows.append(row)
    arms = tuple(ArmCard(arm, "m", 1, (0, 1), steps=1) for arm in ("shared", "plain"))
    return RunData(replace(metadata, arms=arms), pd.DataFrame(rows), pd.DataFrame())


def test_a_point_per_subnetwork_and_none_for_their_mean(members) -> None:
    drawing = draw("subnetworks", members)
    assert drawing.data["arm"].tolist() == ["shared", "shared"]
    assert drawing.data["level"].tolist() == [1, 2]
    assert drawing.data["accuracy"].tolist() == pytest.approx([0.71, 0.61])
    assert len(drawing.figure.data) == 1


def test_operating_points_and_their_frontier(members) -> None:
    drawing = draw("anytime", members)
    own = drawing.data[drawing.data["arm"] == "shared"]
    assert own["members"].tolist() == ["0", "1", "0 + 1"]
    assert own["accuracy"].tolist() == pytest.approx([0.7, 0.6, 0.9])
    assert own["is_best"].tolist() == [True, True, False]
    blind = drawing.data[drawing.data["arm"] != "shared"]
    assert len(blind) == 3
    assert not blind["is_best"].any()
    assert [list(trace.x) for trace in drawing.figure.data[:2]] == [[100.0, 200.0], [300.0]]


def test_the_cluster_of_each_layer(members) -> None:
    drawing = draw("membership", members)
    assert len(drawing.data) == 2 * len(CLUSTERS)
    (heat,) = drawing.figure.data
    assert heat.z[0] == [0.0, 1.0, 0.0]
    assert heat.y == ("member 0", "member 1")


def test_the_line_between_two_members_has_its_places_in_order(members) -> None:
    (line,) = draw("interpolation", members).figure.data
    assert list(line.x) == pytest.approx([i / 10 for i in range(11)])
    assert list(line.y) == pytest.approx([0.51] * 11)


@pytest.mark.parametrize(
    "name",
    [
        "subnetworks",
        "anytime",
        "membership",
        "interpolation",
        "rounds",
        "deviations",
        "communication",
    ],
)
def test_a_note_where_nothing_was_measured(name, trials, steps, metadata) -> None:
    assert isinstance(draw(name, RunData(metadata, trials, steps)), Note)


ROUND_AT = {40: 0, 80: 1, 120: 1, 160: 3}
"""Step to rounds so far: two reports in one round, and a round without a report."""


def test_the_last_report_of_each_round_counts(metadata, trials) -> None:
    rows = []
    for trial in trials[trials["arm"] == "partitioned"].to_dict("records"):
        identity = {key: trial[key] for key in ("trial", "arm", "seed", "index")}
        for step, number in ROUND_AT.items():
            pairs = {"fixing/rounds": number, "size/unique_weights": step + trial["seed"]}
            rows += [{**identity, "metric": m, "step": step, "value": v} for m, v in pairs.items()]
    fixing = RunData(metadata, trials, pd.DataFrame(rows))
    drawing = rounds(fixing, "size/unique_weights")
    # Seeds 0, 1, 2 differ by one: mean 1 above the step, standard error 1 / sqrt(3).
    (trace,) = drawing.figure.data
    assert list(trace.x) == [0, 1, 3]
    assert list(trace.y) == pytest.approx([41, 121, 161])
    assert drawing.data["se"].tolist() == pytest.approx([1 / np.sqrt(3)] * 3)
    assert drawing.data["seeds"].tolist() == [3, 3, 3]
    assert drawing.figure.layout.yaxis.type == "linear"
    fixing.steps.loc[fixing.steps["value"] > 159, "value"] *= 100
    assert rounds(fixing, "size/unique_weights").figure.layout.yaxis.type == "log"


def weights_of(num_layers: int) -> pd.DataFrame:
    rows = [
        (f"layer{number}", moment, 0.1 * number + 0.01 * place, 0.001 * place)
        for number in range(num_layers)
        for moment in ("at the start", "at the end")
        for place in range(3)
    ]
    return pd.DataFrame(rows, columns=["layer", "moment", "mu", "sigma"])


def left_by(metadata, trials, steps, num_layers: int = 2, arms=("partitioned",)) -> RunData:
    def find(trial: str, name: str) -> str | None:
        is_left = trial.split("/", maxsplit=1)[0] in arms and name == "deviations"
        return weights_of(num_layers).to_csv(index=False) if is_left else None

    return RunData(metadata, trials, steps, find=find)


def test_two_panels_for_each_layer(metadata, trials, steps) -> None:
    left = left_by(metadata, trials, steps)
    drawing = deviations(left)
    titles = [note.text for note in drawing.figure.layout.annotations]
    assert titles[:2] == ["layer0, at the start", "layer0, at the end"]
    own = weights_of(2).query("layer == 'layer1' and moment == 'at the end'")
    assert list(drawing.figure.data[3].x) == pytest.approx(own["mu"].tolist())
    assert list(drawing.figure.data[3].y) == pytest.approx(own["sigma"].tolist())
    assert set(zip(drawing.data["arm"], drawing.data["seed"], strict=True)) == {("partitioned", 0)}
    assert "At most 3 weights" in drawing.caption
    assert left.artifact("partitioned/seed0/00000", "other") is None


def test_deep_nets_show_some_layers_and_keep_the_rest_as_data(metadata, trials, steps) -> None:
    drawing = deviations(left_by(metadata, trials, steps, num_layers=9))
    titles = [note.text.split(",")[0] for note in drawing.figure.layout.annotations]
    assert titles[::2] == ["layer0", "layer3", "layer5", "layer8"]
    assert len(titles) == 2 * MAX_LAYERS
    assert drawing.data["layer"].nunique() == 9
    assert "5 more layers" in drawing.caption


def test_an_arm_can_be_asked_for(metadata, trials, steps) -> None:
    left = left_by(metadata, trials, steps, arms=("none", "partitioned"))
    both = [draw(request, left) for request in ("deviations", "deviations:partitioned")]
    assert [set(drawing.data["arm"]) for drawing in both] == [{"none"}, {"partitioned"}]


ARMS = (
    ArmCard("federated", "federated", 1, (0, 1)),
    ArmCard("fedavg", "fedavg", 1, (0, 1)),
    ArmCard("random", "fedavg", 2, (0, 1)),
    ArmCard("again", "fedavg", 1, (0, 1), source="federated"),
)


@pytest.fixture
def federated(metadata) -> RunData:
    """Three reports a trial; accuracy 0.5, 0.6, 0.7, and a tenth more for the second trial."""
    trials, steps = [], []
    places = [(arm, s, i) for arm in ARMS for s in arm.seeds for i in range(arm.trials_per_seed)]
    for arm, seed, index in places:
        trial = f"{arm.name}/{seed}/{index}"
        keys = {"trial": trial, "arm": arm.name, "seed": seed, "index": index}
        for report in (1, 2, 3):
            bytes_sent = (9e6 if arm.name == "federated" else 10e6) * report / 3 * (1 + 0.02 * seed)
            values = {
                "val/accuracy": 0.4 + 0.1 * report + 0.1 * index,
                "communication/total": bytes_sent,
                "communication/up": 0.4 * bytes_sent,
                "communication/down": 0.6 * bytes_sent,
                "federated/rounds": 10.0 * report,
                "federated/dropped": float(seed),
            }
            steps += [
                {**keys, "metric": name, "step": 5 * report, "time": 0.0, "value": value}
                for name, value in values.items()
            ]
        trials.append({**keys, "outcome": "finished", "error": "", "test/accuracy": 0.8, **values})
    return RunData(replace(metadata, arms=ARMS), pd.DataFrame(trials), pd.DataFrame(steps))


def test_a_curve_has_the_mean_over_seeds_of_both_axes(federated) -> None:
    drawing = communication(federated)
    own = drawing.data[drawing.data["arm"] == "fedavg"]
    assert own["megabytes"].tolist() == pytest.approx([10.1 / 3, 20.2 / 3, 10.1])
    assert own["mean"].tolist() == pytest.approx([0.5, 0.6, 0.7])
    assert own["seeds"].tolist() == [2, 2, 2]
    assert [trace.name for trace in drawing.figure.data] == [arm.name for arm in ARMS]
    assert drawing.figure.layout.xaxis.title.text == "sent up and down (MB)"


def test_who_selects_pays_for_all_trials_and_who_follows_for_its_leader(federated) -> None:
    data = sent(federated, "val/accuracy", 1)
    first = data[data["seed"] == 0]
    random = first[first["arm"] == "random"]
    assert random["bytes"].tolist() == pytest.approx([10e6, 20e6])
    assert random["value"].tolist() == pytest.approx([0.7, 0.8])
    again = first[first["arm"] == "again"]
    assert again["bytes"].tolist() == pytest.approx([9e6 + 10e6 / 3 * i for i in (1, 2, 3)])


def test_a_window_averages_the_evaluations_so_far(federated) -> None:
    data = sent(federated, "val/accuracy", 2)
    own = data[(data["arm"] == "federated") & (data["seed"] == 0)]
    assert own["value"].tolist() == pytest.approx([0.5, 0.55, 0.65])
    assert "over 2 evaluations" in communication(federated, "val/accuracy", "2").caption
    with pytest.raises(ConfigError, match="Give at least 1"):
        communication(federated, "val/accuracy", "0")


def test_the_table_sets_every_arm_beside_federated_averaging(federated) -> None:
    (table,) = [table for table in federated.tables if table.heading == "Communication"]
    cells = {column.header: list(column.cells) for column in table.columns}
    assert cells["arm"] == [arm.name for arm in ARMS]
    assert cells["rounds"] == ["30"] * 4
    assert cells["sent (MB)"] == ["9.09", "10.10", "10.10", "10.10"]
    assert cells["% of fedavg"] == ["90.0", "100.0", "100.0", "100.0"]
    assert cells["sent per seed (MB)"] == ["9.09", "10.10", "20.20", "19.19"]
    assert cells["clients dropped"] == ["0.5"] * 4


def test_the_page_shows_every_table_under_its_own_heading(federated) -> None:
    hyper = replace(federated, trials=federated.trials.assign(**{"hyper/rotation": 1.0}))
    text = _page(hyper, {})
    headings = re.findall(r"<h2>([^<]+)</h2>\s*<div class=\"wide\"[^>]*><table", text)
    assert headings[:3] == ["Scores and costs", "Hyperparameters", "Communication"]
    assert "% of fedavg" in text.partition("<h2>Communication</h2>")[2]
