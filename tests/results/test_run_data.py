"""What is derived from the frames of a run: itself at an earlier cost, its report on disk."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tuneparts.core.errors import ConfigError, DataMissingError
from tuneparts.results.run_data import RunData, cost_note
from tuneparts.search.card import ArmCard, RunCard

SEEDS = (0, 1, 2, 3)
REPORTS = (100, 200, 300, 400)
ARMS = {"alternating": 1, "searched": 3}
"""Trials of a seed; the first arm updates its weights in every second pass."""


@pytest.fixture
def run(metadata) -> RunData:
    rng = np.random.default_rng(7)
    trials, reports = [], []
    for arm, num in ARMS.items():
        for seed in SEEDS:
            for index in range(num):
                own = {"trial": f"{arm}/{seed}/{index}", "arm": arm, "seed": seed, "index": index}
                for steps in REPORTS:
                    values = {
                        "cost/steps": steps,
                        "cost/updates": steps // 2 if arm == "alternating" else steps,
                        "val/accuracy": rng.uniform(),
                        "test/accuracy": rng.uniform(),
                    }
                    reports += [
                        {**own, "metric": name, "step": steps, "time": 0.0, "value": value}
                        for name, value in values.items()
                    ]
                end = {**values, "test/nll": 0.5, "outcome": "finished", "error": ""}
                trials.append({**own, **end})
    arms = tuple(ArmCard(arm, "standard", n, SEEDS, steps=400) for arm, n in ARMS.items())
    described = type(metadata)(**{**metadata.__dict__, "arms": arms})
    return RunData(described, pd.DataFrame(trials), pd.DataFrame(reports))


def slowly(run: RunData, count: int) -> dict[tuple[str, int], float]:
    """Test accuracy by arm and seed of the trial that validation preferred at that count."""
    found = {}
    for arm, num in ARMS.items():
        for seed in SEEDS:
            best = (-1.0, 0.0)
            for index in range(num):
                rows = run.steps[run.steps["trial"] == f"{arm}/{seed}/{index}"]
                last = None
                for steps in REPORTS:
                    here = rows[rows["step"] == steps].set_index("metric")["value"]
                    if here["cost/updates"] <= count:
                        last = here
                assert last is not None
                best = max(best, (last["val/accuracy"], last["test/accuracy"]))
            found[arm, seed] = best[1]
    return found


@pytest.mark.parametrize("count", [100, 150, 200, 399])
def test_trials_are_read_and_selected_at_the_count(run: RunData, count: int) -> None:
    chosen = run.at(f"updates={count}", needs="test/accuracy").selected
    scores = {(r["arm"], r["seed"]): r["test/accuracy"] for r in chosen.to_dict("records")}
    assert scores == slowly(run, count)


def test_the_whole_run_at_its_last_count_is_the_run(run: RunData) -> None:
    found = run.at("updates=400", needs="test/accuracy").selected
    columns = ["trial", "test/accuracy", "val/accuracy", "cost/steps"]
    pd.testing.assert_frame_equal(found[columns], run.selected[columns], check_dtype=False)


def test_a_cost_before_the_first_report_is_refused_with_it(run: RunData) -> None:
    with pytest.raises(DataMissingError, match=r"first report of .* is at 50"):
        run.at("updates=49", needs="test/accuracy")


def test_what_is_known_at_the_end_only_is_kept_apart(run: RunData) -> None:
    found = run.at("updates=200", needs="test/accuracy")
    assert set(found.trials["cost/steps"]) == {200.0, 400.0}
    assert "test/nll" not in found.trials
    with pytest.raises(DataMissingError, match=r"`test/nll`.*score_test_always"):
        run.at("updates=200", needs="test/nll")


def test_a_run_without_steps_is_refused(run: RunData) -> None:
    bare = RunData(run.metadata, run.trials, run.steps.iloc[:0])
    with pytest.raises(DataMissingError, match="no step of rotated_digits has"):
        bare.at("steps=200", needs="test/accuracy")


def test_a_run_with_steps_of_selected_trials_only_is_refused(run: RunData) -> None:
    steps = run.steps[run.steps["trial"].isin(run.selected["trial"])]
    with pytest.raises(DataMissingError, match="8 of 16 have no steps, as `searched/0/"):
        RunData(run.metadata, run.trials, steps).at("steps=200", needs="test/accuracy")


def test_steps_need_no_column_of_their_own(run: RunData) -> None:
    steps = run.steps[run.steps["metric"] != "cost/steps"]
    bare = RunData(run.metadata, run.trials, steps)
    found = [one.at("steps=250", needs="test/accuracy").selected for one in (run, bare)]
    pd.testing.assert_frame_equal(*found, check_like=True)


def test_before_the_first_report_of_an_arm_there_is_nothing_to_compare(run: RunData) -> None:
    early = run.at("updates=60", needs="test/accuracy")
    with pytest.raises(ConfigError, match="no selected trial of `searched`"):
        early.compared([("alternating", "searched")], metric="test/accuracy")


def test_it_says_where_arms_were_read(run: RunData) -> None:
    found = run.at("updates=250", needs="test/accuracy")
    compared = found.compared([("alternating", "searched")], "test/accuracy")
    text = cost_note(found, compared, "updates=250")
    assert "at most 250 updates: alternating 200, searched 200." in text


@pytest.mark.parametrize("text", ["1200", "updates", "epochs=3", "steps=-1", "steps=nan"])
def test_a_cost_that_is_none_is_refused(run: RunData, text: str) -> None:
    with pytest.raises(ConfigError, match="NAME=COUNT"):
        run.at(text, needs="test/accuracy")


def test_writes_what_it_says(trials, steps, metadata, tmp_path):
    paths = RunData(metadata, trials, steps).write(tmp_path / "new" / "folder")
    figures = {f"figures/{name}.{kind}" for name in metadata.figures for kind in ("json", "csv")}
    files = {"report.html", "table.md", "table.csv", "table.tex", "trials.csv", "metadata.json"}
    assert set(paths) == files | figures
    written = {path for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert written == set(paths.values())
    assert RunCard.from_json(paths["metadata.json"].read_text()) == metadata
    assert json.loads(paths["figures/accuracy.json"].read_text())["data"]
    size = sum(path.stat().st_size for path in paths.values())
    assert size <= 6e6, "a report is small enough to be mailed"


def test_arguments_of_a_figure_make_a_tame_file_name(trials, steps, metadata, tmp_path):
    asked = replace(metadata, figures=("accuracy:test/nll", "sweep:param.nothing"))
    names = {
        name for name in RunData(asked, trials, steps).write(tmp_path) if name.startswith("figures")
    }
    assert names == {f"figures/accuracy-test-nll.{kind}" for kind in ("json", "csv")}


def test_a_failure_leaves_the_old_file_whole(trials, steps, metadata, tmp_path, monkeypatch):
    metadata = replace(metadata, figures=())
    old = {n: p.read_text() for n, p in RunData(metadata, trials, steps).write(tmp_path).items()}

    def full(self, target):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        RunData(replace(metadata, question="Another?"), trials, steps).write(tmp_path)
    assert {n: (tmp_path / n).read_text() for n in old} == old
    assert not list(tmp_path.rglob("*.part*"))
