"""What the pages read, cached: a search that is over once, one that runs every few seconds.

Numbers of a run whose folder lies on this machine come from its journal, those of any other run
from the MLflow store.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import streamlit as st

from tuneparts.cli.serving import PORT as UI_PORT
from tuneparts.core import schema, settings
from tuneparts.core.access import LOOPBACK
from tuneparts.core.errors import DataError, DataMissingError, TunepartsError
from tuneparts.executors import logs
from tuneparts.results.run_data import RunData
from tuneparts.search import frames
from tuneparts.search import runs as folders
from tuneparts.search.card import RunCard
from tuneparts.search.events import TrialId
from tuneparts.search.storage import Folder
from tuneparts.tracking import card, record, store
from tuneparts.tracking import frames as store_frames

SECONDS = 3
"""Between two looks at what runs."""
RUNNING = "RUNNING"
JOURNAL = "journal.jsonl"


def uri() -> str:
    """The store of this process."""
    return store.resolve(settings.current().tracking_uri)


@st.cache_data(ttl=SECONDS, show_spinner="reading the store")
def runs(place: str) -> pd.DataFrame:
    """One row per search that ever ran, newest first; empty when none did."""
    try:
        return store_frames.runs(place)
    except DataMissingError:
        return pd.DataFrame(columns=store_frames.RUN_COLUMNS)


@st.cache_data(max_entries=200, show_spinner=False)
def _metadata(place: str, parent: str) -> str | None:
    return store.artifact_text(place, parent, "metadata.json") or None


def metadata(place: str, parent: str) -> RunCard | None:
    """The search as its report tells it; None where the store has none."""
    found = _metadata(place, parent)
    if found is None:
        _metadata.clear(place, parent)
        return None
    try:
        # It was written before the store had given the run its id.
        return replace(RunCard.from_json(found), parent_run_id=parent)
    except DataError:  # one bad run must not hide the others
        return None


@st.cache_data(max_entries=200, show_spinner=False)
def mlflow_link(place: str, run_id: str) -> str:
    """The page of a run in MLflow's UI: on its server, or where `tuneparts ui` serves a database.

    Its cookie opens the latter once the link that `tuneparts ui` prints was followed.
    """
    experiment = store.client(place).get_run(run_id).info.experiment_id
    root = place.rstrip("/") if store.is_server(place) else f"http://{LOOPBACK}:{UI_PORT}"
    return f"{root}/{card.run_link(str(experiment), run_id)}"


@st.cache_data(max_entries=50, show_spinner="reading figures")
def figures(place: str, parent: str, names: tuple[str, ...]) -> dict[str, str]:
    """The figures of the report of a search that is over, as plotly's JSON by name."""
    texts = {
        name: store.artifact_text(place, parent, f"report/figures/{name}.json") for name in names
    }
    return {name: text for name, text in texts.items() if text is not None}


def hypers(place: str, run: "pd.Series[Any]") -> tuple[str, ...]:
    """The hyperparameters that trials of a run have reported."""
    return tuple(sorted(name for name in map(str, trials(place, run)) if name.startswith("hyper/")))


def folder_name(place: str, parent: str) -> str | None:
    """The name of a run whose folder lies on this machine, as verbs take it; None elsewhere."""
    run = _folder(place, parent)
    return None if run is None else run.name


def _folder(place: str, parent: str) -> folders.Run | None:
    """The run's folder, where it lies on this machine: its journal is faster than any store."""
    found = runs(place)
    known = found[found["parent_run_id"] == parent]
    if known.empty:  # the list of runs is a few seconds old
        return None
    row = known.iloc[0]
    try:
        run = folders.named(settings.current().results_dir, f"{row['search']}/{row['run']}")
        tracked = record.load(run.folder)
    except (TunepartsError, OSError):
        return None
    return run if tracked is not None and tracked.parent == parent else None


def _read_trials(place: str, parent: str) -> pd.DataFrame:
    run = _folder(place, parent)
    if run is None:
        return store_frames.trials(place, parent, params=False)
    tracked = record.load(run.folder)
    return frames.trials(run.folder / JOURNAL, tracked.trials if tracked is not None else None)


def _read_steps(place: str, parent: str, metrics: tuple[str, ...]) -> pd.DataFrame:
    run = _folder(place, parent)
    if run is None:
        return store_frames.steps(place, parent, metrics)
    return frames.steps(run.folder / JOURNAL, metrics)


_trials_now = st.cache_data(ttl=SECONDS, max_entries=20, show_spinner="reading trials")(
    _read_trials
)
_steps_now = st.cache_data(ttl=SECONDS, max_entries=40, show_spinner="reading curves")(_read_steps)


@st.cache_data(max_entries=20, show_spinner="reading trials")
def _trials_over(place: str, parent: str) -> pd.DataFrame:
    found = _read_trials(place, parent)
    # The journal of a run that was ended from outside knows no end of what ran then.
    return found.assign(outcome=found["outcome"].replace([frames.QUEUED, frames.RUNNING], "killed"))


@st.cache_data(max_entries=40, show_spinner="reading curves")
def _steps_over(place: str, parent: str, metrics: tuple[str, ...]) -> pd.DataFrame:
    return _read_steps(place, parent, metrics)


def trials(place: str, run: "pd.Series[Any]") -> pd.DataFrame:
    """One row per trial of a run, without configs."""
    read = _trials_now if run["status"] == RUNNING else _trials_over
    found: pd.DataFrame = read(place, str(run["parent_run_id"]))
    return found


def run_data(place: str, run: "pd.Series[Any]", card: RunCard, *metrics: str) -> RunData:
    """What figures of these metrics are drawn from."""
    parent = str(run["parent_run_id"])
    read = _steps_now if run["status"] == RUNNING else _steps_over
    steps = read(place, parent, metrics) if metrics else pd.DataFrame(columns=frames.STEP_COLUMNS)
    return RunData(card, trials(place, run), steps)


def answer(place: str, run: "pd.Series[Any]", card: RunCard) -> str:
    """The answer of a search that is over; empty where no trial of it finished."""
    if run["status"] == RUNNING or not run["finished"]:
        return ""
    counts = [int(run[kind]) for kind in ("finished", "stopped", "failed", "killed")]
    return _answer(place, (str(run["parent_run_id"]), *counts), run, card)


@st.cache_data(max_entries=200, show_spinner="reading answers")
def _answer(
    place: str,
    key: tuple[str | int, ...],  # noqa: ARG001 - it is kept by this: a run may be extended
    _run: "pd.Series[Any]",
    _told: RunCard,
) -> str:
    try:
        return run_data(place, _run, _told).answer
    except TunepartsError:  # one bad run must not hide the others
        return ""


@st.cache_data(ttl=SECONDS, max_entries=50, show_spinner="reading the trial")
def trial(place: str, run_id: str) -> tuple[dict[str, object], pd.DataFrame] | None:
    """A trial's row and steps; None when there is no such trial."""
    try:
        row, steps = store_frames.trial(place, run_id)
    except DataMissingError:
        return None
    if any(schema.find(name) is None for name in steps["metric"].unique()):
        metadata(place, str(row["parent_run_id"]))  # declares the metrics of its method
    return row, steps


@st.cache_data(ttl=SECONDS, max_entries=50, show_spinner=False)
def log(place: str, parent: str, trial: str) -> list[str]:
    """Return the log of a trial's worker, oldest line first; empty if its folder is elsewhere."""
    run = _folder(place, parent)
    try:
        return [] if run is None else logs.read(Folder(run.storage), TrialId.parse(trial))
    except (TunepartsError, OSError):
        return []


@st.cache_data(max_entries=5, show_spinner="reading the report")
def report(place: str, parent: str) -> str | None:
    """The report page of a search that is over."""
    return store.artifact_text(place, parent, "report/report.html")


def now() -> datetime:
    """Return the present time, in UTC."""
    return datetime.now(UTC)
