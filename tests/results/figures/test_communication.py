"""Score against bytes, and the table beside it, on a small run."""

import dataclasses
import re

import pandas as pd
import pytest

from tuneparts.core.errors import ConfigError
from tuneparts.results.figures.communication import communication, over_seeds, points
from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.page import page
from tuneparts.results.run_data import RunData
from tuneparts.search.card import ArmCard

SEEDS = (0, 1)
ARMS = (
    ArmCard("federated", "federated", 1, SEEDS),
    ArmCard("fedavg", "fedavg", 1, SEEDS),
    ArmCard("random", "fedavg", 2, SEEDS),
    ArmCard("again", "fedavg", 1, SEEDS, follows="federated"),
)
MEGABYTES = {"federated": 9.0, "fedavg": 10.0, "random": 10.0, "again": 10.0}


@pytest.fixture
def run_data(metadata) -> RunData:
    """Three reports a trial; accuracy 0.5, 0.6, 0.7, and a tenth more for the second trial."""
    trials, steps = [], []
    for arm in ARMS:
        for seed in SEEDS:
            for index in range(arm.trials_per_seed):
                trial = f"{arm.name}/{seed}/{index}"
                keys = {"trial": trial, "arm": arm.name, "seed": seed, "index": index}
                for report in (1, 2, 3):
                    sent = MEGABYTES[arm.name] * 1e6 * report / 3 * (1 + 0.02 * seed)
                    values = {
                        "val/accuracy": 0.4 + 0.1 * report + 0.1 * index,
                        "communication/total": sent,
                        "communication/up": 0.4 * sent,
                        "communication/down": 0.6 * sent,
                        "federated/rounds": 10.0 * report,
                        "federated/dropped": float(seed),
                    }
                    steps += [
                        {**keys, "metric": name, "step": 5 * report, "time": 0.0, "value": value}
                        for name, value in values.items()
                    ]
                trials.append(
                    {**keys, "outcome": "finished", "error": "", "test/accuracy": 0.8, **values}
                )
    changed = type(metadata)(**{**metadata.__dict__, "arms": ARMS})
    return RunData(changed, pd.DataFrame(trials), pd.DataFrame(steps))


def test_a_curve_has_the_mean_over_seeds_of_both_axes(run_data) -> None:
    data = over_seeds(points(run_data, "val/accuracy", 1))
    own = data[data["arm"] == "fedavg"]
    assert own["megabytes"].tolist() == pytest.approx([10.1 / 3, 20.2 / 3, 10.1])
    assert own["mean"].tolist() == pytest.approx([0.5, 0.6, 0.7])
    assert own["seeds"].tolist() == [2, 2, 2]


def test_who_selects_pays_for_all_trials_and_who_follows_for_its_leader(run_data) -> None:
    data = points(run_data, "val/accuracy", 1)
    first = data[data["seed"] == 0]
    random = first[first["arm"] == "random"]
    assert random["bytes"].tolist() == pytest.approx([10e6, 20e6])
    assert random["value"].tolist() == pytest.approx([0.7, 0.8])
    again = first[first["arm"] == "again"]
    assert again["bytes"].tolist() == pytest.approx([9e6 + 10e6 / 3 * i for i in (1, 2, 3)])


def test_a_window_averages_the_evaluations_so_far(run_data) -> None:
    data = points(run_data, "val/accuracy", 2)
    own = data[(data["arm"] == "federated") & (data["seed"] == 0)]
    assert own["value"].tolist() == pytest.approx([0.5, 0.55, 0.65])


def test_the_drawing_has_a_line_per_arm(run_data) -> None:
    drawing = communication(run_data, "val/accuracy", "2")
    assert isinstance(drawing, Drawing)
    assert [trace.name for trace in drawing.figure.data] == [arm.name for arm in ARMS]
    assert "over 2 evaluations" in drawing.caption
    assert drawing.figure.layout.xaxis.title.text == "sent up and down (MB)"


def test_a_window_is_a_count(run_data) -> None:
    with pytest.raises(ConfigError, match="at least 1, but got `0`"):
        communication(run_data, "val/accuracy", "0")


def test_runs_that_send_nothing_have_neither_figure_nor_table(trials, steps, metadata) -> None:
    other = RunData(metadata, trials, steps)
    assert isinstance(communication(other), Note)
    assert [table.heading for table in other.tables] == ["Scores and costs", "Hypers"]


def test_the_table_sets_every_arm_beside_federated_averaging(run_data) -> None:
    (table,) = [table for table in run_data.tables if table.heading == "Communication"]
    cells = {column.header: [cell.text for cell in column.cells] for column in table.columns}
    assert cells["arm"] == [arm.name for arm in ARMS]
    assert cells["rounds"] == ["30"] * 4
    assert cells["sent (MB)"] == ["9.09", "10.10", "10.10", "10.10"]
    assert cells["% of fedavg"] == ["90.0", "100.0", "100.0", "100.0"]
    assert cells["sent per seed (MB)"] == ["9.09", "10.10", "20.20", "19.19"]
    assert cells["clients dropped"] == ["0.5"] * 4


def test_the_page_shows_every_table_under_its_own_heading(run_data) -> None:
    text = page(run_data, {})
    headings = re.findall(r"<h2>([^<]+)</h2><div class=\"wide\"[^>]*><table", text)
    assert headings[:2] == ["Scores and costs", "Communication"]
    assert "% of fedavg" in text.partition("<h2>Communication</h2>")[2]
    hyper = dataclasses.replace(run_data, trials=run_data.trials.assign(**{"hyper/rotation": 1.0}))
    headings = re.findall(r"<h2>([^<]+)</h2><div class=\"wide\"[^>]*><table", page(hyper, {}))
    assert headings[:3] == ["Scores and costs", "Hypers", "Communication"]
