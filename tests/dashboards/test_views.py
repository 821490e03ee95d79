"""The pages without a browser: what they say of an empty, a running and a finished store."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, insert

from tuneparts.core import settings
from tuneparts.executors.logs import _TrialLog
from tuneparts.search import load, runs
from tuneparts.search.card import ArmCard, RunCard
from tuneparts.search.events import Row, TrialEnded, TrialId, TrialStarted
from tuneparts.search.journal import Journal
from tuneparts.search.storage import Folder
from tuneparts.tracking import frames, record, store
from tuneparts.tracking.tracker import Tracker

pytestmark = pytest.mark.mlflow
ARMS = ("random", "tpe")


def open_page(name: str, **query: str) -> Any:
    from streamlit.testing.v1 import AppTest

    app = AppTest.from_string(f"from views import {name}\n{name}.show()", default_timeout=120)
    app.query_params.update(query)
    app.run()
    assert not app.exception, app.exception
    return app


def words(app: Any) -> str:
    kinds = ("title", "header", "subheader", "markdown", "caption", "code", "info", "error")
    return "\n".join(str(e.value) for kind in kinds for e in getattr(app, kind))


@pytest.mark.parametrize("page", ["searches", "search", "trial", "compare", "report"])
def test_an_empty_store_teaches_the_first_command(page: str) -> None:
    assert "tuneparts search rotated_digits" in words(open_page(page))


@pytest.fixture
def under_way(
    here: Path, template_store: Path, run_here: Callable[..., Iterator[None]]
) -> Iterator[Any]:
    """A search with three reports so far, and the iterator that goes on with it."""
    from tuneparts.results.running import tracking_card

    shutil.copy(template_store, here / "mlflow.db")
    search = load.load("rotated_digits", scale="smoke")
    run = runs.create(here, search, command="", commit="c0ffee", versions={}, storage=None)
    tracker = Tracker(
        settings.current().tracking_uri,
        folder=run.folder,
        search=tracking_card(run),
        interval=0.01,
    )
    steps = run_here(run, tracker)
    for _ in range(3):
        next(steps)
    assert tracker.flush()
    yield run, tracker, steps
    tracker.close("KILLED")


def addresses(app: Any) -> list[str]:
    """Where the links of a page lead."""
    return [one.proto.url for one in app.get("link_button")]


def _stop_is_asked_twice(app: Any, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def asks(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command[3:])
        return subprocess.CompletedProcess(command, 0, f"{run} is stopped", "")

    monkeypatch.setattr(subprocess, "run", asks)
    app.button(key=f"stop-{run}-first").click().run()
    assert "Stop the search for good?" in app.warning[0].value
    app.button(key=f"stop-{run}-no").click().run()
    assert not app.warning
    assert asked == []
    app.button(key=f"stop-{run}-first").click().run()
    app.button(key=f"stop-{run}-second").click().run()
    assert asked == [["stop", run]]
    assert f"{run} is stopped" in words(app)


def test_a_search_from_its_first_reports_to_its_end(
    under_way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import streamlit

    run, tracker, steps = under_way
    text = words(open_page("searches"))
    assert "rotated_digits (smoke)" in text
    assert "running" in text
    app = open_page("search")
    assert app.header[0].value == run.search.question
    arms = app.dataframe[0].value.set_index("arm")
    so_far = frames.trials(store.resolve(), str(tracker.parent_run_id))["cost/steps"].max()
    assert 0 < so_far < 20
    assert arms["fraction"]["partitioned"] == pytest.approx(so_far / 20)
    assert arms["open"].sum() >= 1
    assert "A report is written when" in words(open_page("report"))
    with monkeypatch.context() as patch:
        _stop_is_asked_twice(app, run.name, patch)

    for _ in steps:
        pass
    assert tracker.close() == []
    streamlit.cache_data.clear()
    (card,) = [one for one in words(open_page("searches")).split("\n") if "highest mean" in one]
    assert card.startswith("**")
    app = open_page("search")
    assert app.dataframe[0].value["trials finished"].tolist() == ["1/1", "2/2", "1/1", "1/1"]
    assert "Hyperparameters over steps" in words(app)
    parent = str(tracker.parent_run_id)
    assert f"report?run={parent}" in addresses(app)
    assert any(f"/runs/{parent}?workflowType=" in one for one in addresses(app))
    assert "has the highest mean test accuracy" in words(app)
    assert "5 of 5 trials" in words(app)
    assert words(open_page("compare")).count("has the highest mean test accuracy") == 2
    trials = frames.trials(store.resolve(), str(tracker.parent_run_id))
    found = open_page("trial", id=trials["run_id"][0])
    assert found.title[0].value == trials["trial"][0]
    assert f"search?run={parent}" in addresses(found)
    assert "20 steps:" in found.code[-2].value
    assert "standard from 0 to 20 steps on" in found.code[-1].value
    log = _TrialLog(Folder(run.storage), TrialId.parse(trials["trial"][0]))
    log.add("a word from the worker")
    log.keep()
    streamlit.cache_data.clear()
    found = open_page("trial", id=trials["run_id"][0])
    assert "a word from the worker" in found.code[-1].value


def test_the_first_metric_shown_is_the_one_that_most_trials_have() -> None:
    from views.parts import telling

    counts = {"cost/steps": 9, "val/accuracy": 3, "test/accuracy": 7, "train/loss": 7, "arm": 9}
    assert telling(counts) == "test/accuracy"
    assert telling(counts, "train/loss") == "train/loss"
    assert telling({"arm": 2, "hyper/shear": 2, "cost/steps": 2}) == "cost/steps"


def test_a_failed_trial_shows_its_error(here: Path) -> None:
    uri, parent = synthetic(num_trials=8)
    trials = frames.trials(uri, parent)
    failed = trials[trials["outcome"] == "failed"].iloc[0]
    app = open_page("trial", id=failed["run_id"])
    assert "the loss is NaN" in words(app)
    assert app.code[-1].value == "nothing here"  # it left no log
    assert "Choose a trial" in words(open_page("trial", id="nonsense"))


@pytest.mark.slow
def test_ten_thousand_trials_on_this_machine_open_with_a_handful_of_queries(here: Path) -> None:
    journalled(num_trials=10_000)
    statements: list[str] = []

    def count(conn: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("SELECT"):
            statements.append(statement)

    event.listen(Engine, "before_cursor_execute", count)
    try:
        app = open_page("search")
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert "10,000 of 10,000 trials" in words(app)
    assert len(app.dataframe[-1].value) == 50  # a page of them
    assert len(statements) < 100


def test_a_run_that_was_ended_from_outside_has_killed_trials(here: Path) -> None:
    journalled(num_trials=8, ended=6)
    assert "killed" in open_page("search").selectbox(key="outcome").options


def big_search(num_trials: int) -> RunCard:
    arms = tuple(ArmCard(a, "standard", num_trials // 2, (0,), steps=20) for a in ARMS)
    question = "How many trials are many?"
    return RunCard(name="big", question=question, metric="val/accuracy", arms=arms)


def journalled(num_trials: int, ended: int | None = None) -> None:
    """A finished search whose folder lies here, while the store has its parent run only."""
    folder = settings.current().results_dir / "big" / "20260101-000000Z-0123456789ab"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        '{"version": 2, "created": 0.0, "digest": "", "search": {}, "storage": null}'
    )
    _, parent = parent_run(num_trials, run=folder.name)
    tracked = record._create(folder, 0.0)
    tracked.parent = parent
    tracked.save()
    journal = Journal(folder / "journal.jsonl")
    for number in range(num_trials):
        trial = TrialId(ARMS[number % 2], 0, number // 2)
        journal.append(TrialStarted(trial, {"steps": 20}, number))
        score = {"val/accuracy": number / num_trials, "cost/steps": 20.0}
        journal.append(Row(trial, 20, score, number + 0.5))
        if number < (num_trials if ended is None else ended):
            journal.append(TrialEnded(trial, "finished", number + 0.9))
    journal.close()


def parent_run(num_trials: int, run: str) -> tuple[str, str]:
    """The parent run of a finished search in the store: its experiment and its id."""
    client = store.client(store.resolve())
    root = store._artifact_root(store.resolve())
    experiment = client.create_experiment("big", artifact_location=root)
    tags = {"tuneparts.kind": "search", "tuneparts.run": run, "search": "big", "scale": "cpu"}
    made = client.create_run(experiment, tags={**tags, "digest": "d", "commit": "c"})
    client.log_text(made.info.run_id, big_search(num_trials).to_json(), "metadata.json")
    client.set_terminated(made.info.run_id)
    return experiment, made.info.run_id


def synthetic(num_trials: int) -> tuple[str, str]:
    """A finished search written straight into the tables; every eighth trial failed."""
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlRun, SqlTag

    uri = store.resolve()
    experiment, parent = parent_run(num_trials, run="r")
    rows: dict[Any, list[dict[str, Any]]] = {
        SqlRun: [], SqlTag: [], SqlLatestMetric: [], SqlMetric: [],
    }  # fmt: skip
    for number in range(num_trials):
        run_id, arm, index = f"{number:032x}", ARMS[number % 2], number // 2
        failed = number % 8 == 7
        status = "FAILED" if failed else "FINISHED"
        rows[SqlRun].append(
            {"run_uuid": run_id, "name": "t", "source_type": "LOCAL", "status": status,
             "start_time": 1000 * number, "end_time": 1000 * number + 900, "user_id": "",
             "lifecycle_stage": "active", "experiment_id": int(experiment), "artifact_uri": ""}
        )  # fmt: skip
        texts = {
            "tuneparts.kind": "trial",
            "mlflow.parentRunId": parent,
            "tuneparts.trial": f"{arm}/seed0/{index:05d}",
            "outcome": status.lower(),
            "error": "the loss is NaN" if failed else "",
        }
        rows[SqlTag] += [{"run_uuid": run_id, "key": k, "value": v} for k, v in texts.items()]
        for name, value in {"val/accuracy": number / num_trials, "cost/steps": 20.0}.items():
            point = {"run_uuid": run_id, "key": name, "value": value, "timestamp": number}
            rows[SqlLatestMetric].append({**point, "step": 20, "is_nan": False})
            rows[SqlMetric] += [{**point, "step": step, "is_nan": False} for step in (10, 20)]
    with create_engine(uri).begin() as connection:
        for table, content in rows.items():
            connection.execute(insert(table.__table__), content)
    return uri, parent
