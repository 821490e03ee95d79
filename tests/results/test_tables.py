import io
from dataclasses import replace

import pandas as pd
import pytest

from tuneparts.results import tables
from tuneparts.results.rendering import _Bold
from tuneparts.results.run_data import RunData
from tuneparts.results.select import _summarise


@pytest.fixture
def run_data(trials, steps, metadata):
    return RunData(metadata, trials, steps)


@pytest.fixture
def built(run_data):
    return run_data.tables


def cells(table, header):
    (column,) = [c for c in table.columns if c.header.startswith(header)]
    return list(column.cells)


def bold(table, header):
    """Arms whose cell is bold."""
    (column,) = [c for c in table.columns if c.header.startswith(header)]
    arms = table.columns[0].cells
    return [arm for arm, cell in zip(arms, column.cells, strict=True) if isinstance(cell, _Bold)]


def test_decimals_and_error_come_from_the_schema():
    assert tables._spread(0.90617, 0.00444, 4) == "0.9062 ± 0.0044"
    assert tables._spread(12345.0, float("nan"), 0) == "12,345"
    assert tables._spread(float("nan"), float("nan"), 4) == tables.NOTHING


def test_label_says_unit_once():
    assert tables.label("test/nll", arrow=True) == "test nll (nats) ↓"
    assert tables.label("hyper/rotation", arrow=True) == "rotation (rad)"
    assert tables.label("cost/steps") == "steps"


def test_updates_are_shown_where_they_are_not_the_steps(trials, steps, metadata):
    def headers(frame):
        return [c.header for c in RunData(metadata, frame, steps).tables[0].columns]

    assert "updates per seed" not in headers(trials)
    assert "updates per seed" not in headers(
        trials.assign(**{"cost/updates": trials["cost/steps"]})
    )
    halved = trials.assign(**{"cost/updates": trials["cost/steps"] / 2})
    assert "updates per seed" in headers(halved)


def test_failures_are_shown(built):
    assert cells(built[0], "trials")[1] == "22/24 (1 failed, 1 missing)"
    assert any("loss was nan at step 160" in note for note in built[0].notes)
    assert "not an epoch" in built[0].notes[0]


def test_an_arm_that_only_failed_says_so_in_the_place_of_its_score(trials, metadata):
    trials.loc[trials["arm"] == "none", ["outcome", "error"]] = ["failed", "out of memory"]
    table = RunData(metadata, trials, pd.DataFrame()).tables[0]
    assert cells(table, "test accuracy")[0] == "failed: 3/3"
    assert cells(table, "seeds")[0] == "0/3"
    assert any("out of memory" in note for note in table.notes)


def test_tables_and_answer_are_made_once(run_data, monkeypatch):
    calls = []
    build = tables._build
    monkeypatch.setattr(tables, "_build", lambda *args: calls.append(args) or build(*args))
    assert run_data.tables is run_data.tables
    assert run_data.answer is run_data.answer
    assert len(calls) == 1


def test_nothing_is_bold_where_the_answer_leaves_it_open(built, run_data):
    assert "is inconclusive" in run_data.answer
    assert not any(bold(table, c.header) for table in built for c in table.columns)


def test_the_winner_is_bold_where_the_answer_names_it(scored):
    run_data = scored({"a": {0: 0.9, 1: 0.92, 2: 0.91}, "b": {0: 0.8, 1: 0.81, 2: 0.82}})
    assert "a has the highest" in run_data.answer
    assert "is ahead of b" in run_data.answer
    assert bold(run_data.tables[0], "test accuracy") == ["a"]


AHEAD = {"a": {0: 0.9, 1: 0.92, 2: 0.91}, "b": {0: 0.8, 1: 0.81, 2: 0.82}}


@pytest.mark.parametrize(
    "scores",
    [
        {**AHEAD, "c": {0: 0.99, 1: 0.4, 2: 0.7}},  # too uncertain to differ from the best
        {**AHEAD, "c": {0: 0.1}},  # one seed is too few
        {"a": {0: 0.9, 1: 0.8}},
    ],
)
def test_a_winner_is_ahead_of_every_arm(scored, scores):
    run_data = scored(scores)
    assert run_data.verdict("test/accuracy").winner is None
    assert bold(run_data.tables[0], "test accuracy") == []


def test_total_columns_only_where_an_arm_has_a_source(trials, metadata, built):
    assert cells(built[0], "total steps")[-1] == "800"
    alone = replace(metadata, arms=metadata.arms[:3])
    table = RunData(alone, trials[trials["arm"] != "retrained"], pd.DataFrame()).tables[0]
    assert not [c for c in table.columns if "total" in c.header]


def test_csv_reads_back_at_full_precision(run_data, metadata):
    summary = run_data.summary
    back = pd.read_csv(io.StringIO(tables._to_csv(summary, metadata)))
    assert list(back["test/accuracy"]) == list(summary["test/accuracy"])
    assert set(back["digest"]) == {metadata.digest}


def test_of_a_family_of_hypers_the_table_shows_the_range(trials, metadata):
    trials["hyper/keep.0"] = 0.5
    trials["hyper/keep.1"] = 0.7
    summary = _summarise(trials, metadata)
    table = RunData(metadata, trials, pd.DataFrame()).tables[1]
    family = table.columns[-1]
    assert [c.header for c in table.columns] == ["arm", "rotation (rad)", "keep.*, 2 values"]
    assert set(family.cells) == {"0.500 to 0.700"}
    assert "each value is in the CSV file" in table.notes[0]
    assert "hyper/keep.1" in tables._to_csv(summary, metadata)


def test_corrupted_scores_and_sizes_stand_beside_test_scores(trials, metadata):
    trials["corrupted/nll"] = trials["test/nll"] + 1
    trials["size/parameters"] = 1234.0
    table = RunData(metadata, trials, pd.DataFrame()).tables[0]
    names = [column.header for column in table.columns]
    assert "corrupted nll (nats) ↓" in names
    sizes = next(column for column in table.columns if "parameters" in column.header)
    assert not any(isinstance(cell, _Bold) for cell in sizes.cells)


def test_sharing_shows_what_the_budget_left_of_what_was_asked_for(trials, metadata):
    shared = trials.assign(
        **{
            "superweights/tau_asked": 0.4,
            "superweights/tau": 0.05,
            "superweights/bins": 4.0,
            "superweights/clusters": 7.0,
            "superweights/trained": 104.0,
        }
    )
    table = RunData(metadata, shared, pd.DataFrame()).tables[-1]
    assert table.heading == "Sharing"
    shown = {column.header.split(" ↑")[0]: column.cells[0] for column in table.columns}
    assert shown["tau asked"].startswith("0.40")
    assert shown["tau"].startswith("0.05")
    assert shown["clusters"].startswith("7")
    assert "which was lowered" in table.notes[1]


def test_seconds_are_those_of_a_machine(trials, steps, metadata):
    told = replace(metadata, environment={"machine": "a slow one"})
    (scores, *_) = RunData(told, trials, steps).tables
    assert any("Seconds are those of a slow one" in note for note in scores.notes)
