"""What a run has found: what `RunData` derives from its frames, its report, exports and nets."""

import fcntl
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tuneparts.core import atomic, settings
from tuneparts.core.errors import ConfigError, DataMissingError, TunepartsError, UnknownNameError
from tuneparts.results import _sample_grid, rendering
from tuneparts.results.compare import Comparison
from tuneparts.results.run_data import ArtifactReader, RunData
from tuneparts.search import frames
from tuneparts.search import runs as folders
from tuneparts.search.arm import method_config
from tuneparts.search.card import RunCard
from tuneparts.search.events import TrialId
from tuneparts.search.spec import Search
from tuneparts.search.state import RunState
from tuneparts.search.storage import ArtifactStore, Folder
from tuneparts.tracking import record

if TYPE_CHECKING:  # slow to import, and not every reader needs them
    from plotly.graph_objects import Figure
    from torch import nn

    from tuneparts.training.config import Method
    from tuneparts.training.learner import Learner

_LONGEST_DESCRIPTION = 7000
"""Characters of a description; MLflow keeps 8,000 of a tag."""


def load(name: str | Path | None = None) -> "Results":
    """Read the results of a run, finished or not.

    `name` is `SEARCH/TIME-DIGEST`, or a search's name for its newest run; None for the newest of
    all. Or the folder of a run, or of published results. A run of which no trial ever ran is found
    by its full name only.
    """
    from tuneparts.results.export import Published, _is_published

    if name is not None and _is_published(name):
        return Published(Path(name))
    if name is not None and (Path(name) / "run.json").is_file():
        folder = Path(name).resolve()
        return Results(folders.Run(folder.parents[1], f"{folder.parent.name}/{folder.name}"))
    found = None if name is None else str(name)
    return Results(folders.named(settings.current().results_dir, found, begun=True))


def runs() -> pd.DataFrame:
    """All runs of the results folder, the newest first: name, start, status and trials."""
    rows = []
    for run in reversed(folders.listing(settings.current().results_dir)):
        started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(run.created))
        try:
            trials = RunState.read(run.folder / "journal.jsonl").trials.values()
            ends = [trial.end.outcome for trial in trials if trial.end is not None]
            known = _status(run), len(ends), len(trials) - len(ends), ends.count("failed")
        except TunepartsError:  # the others are listed all the same
            known = "damaged", 0, 0, 0
        rows.append((run.name, started, *known))
    return pd.DataFrame(rows, columns=["name", "started", "status", "done", "open", "failed"])


def _status(run: folders.Run) -> str:
    """Whether a run is finished, running or interrupted; nothing is written."""
    try:
        with (run.folder / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "running"
    except OSError:
        pass  # no process ever drove it, or this file system has no such locks
    known = record.load(run.folder)
    return "finished" if known and known.ending and known.ending[0] == "FINISHED" else "interrupted"


@dataclass(frozen=True)
class Best:
    """The selected trial of an arm under one seed."""

    arm: str
    seed: int
    trial: TrialId
    params: Mapping[str, Any]
    """What the arm's space varies: path -> the value of this trial, or the name of a choice."""
    metric: str
    score: float
    """By the metric that selects; by that of the answer where the trial does not report it."""
    _results: "Results" = field(repr=False, compare=False)

    @property
    def config(self) -> "Method":
        """The config of the method, with the values of this trial."""
        with self._results.run.code.importable():
            return method_config(self._results.state.trials[self.trial].config)

    def net(self) -> "nn.Module":
        """The trained net, from inputs as the data holds them to logits."""
        return self._results.learner(self.trial).final_module()

    def _repr_html_(self) -> str:
        scores = {"arm": self.arm, "seed": self.seed, self.metric: f"{self.score:.4g}"}
        rows = list({**scores, **self.params}.items())
        return rendering._to_html(rendering.Table.of_rows(["best trial", str(self.trial)], rows))


class Results(RunData):
    """What a run has found so far; frames, tables, figures and verdicts are those of `RunData`.

    A run that goes on needs a new object: this one shows the journal as it was first read.
    """

    run: folders.Run
    name: str
    _has_run: bool

    def __init__(self, run: folders.Run, *, has_run: bool = False) -> None:
        vars(self).update(run=run, name=run.name, _has_run=has_run)

    @property
    def search(self) -> Search:
        """The resolved search, as it was when the run began, or was last extended."""
        return self.run.search

    @cached_property
    def search_facts(self) -> dict[str, Any]:
        return dict(self.run.card["search"])

    @property
    def table(self) -> pd.DataFrame:
        """One row per arm: costs, counts, and the mean and standard error of each score."""
        return self.summary

    @cached_property
    def metadata(self) -> RunCard:
        """What the run is besides its numbers."""
        return RunCard.of(self.run, self.parent_run_id, self.state.stops)

    @property
    def parent_run_id(self) -> str:
        """MLflow's id of the whole run; empty while the store has not answered."""
        return self._tracked.parent or ""

    @property
    def run_ids(self) -> dict[TrialId, str]:
        """MLflow's id of each trial that the store has."""
        return self._tracked.trials

    @cached_property
    def _tracked(self) -> record.Record:
        return record.load(self.run.folder) or record.Record(self.run.folder, key="")

    @cached_property
    def state(self) -> RunState:
        _ = self.find  # refuses a storage that leads out of the run's folder
        return RunState.read(self.run.folder / "journal.jsonl")

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial; see `frames.trials`."""
        return frames.trials(self.state, self.run_ids)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per trial, metric and step; see `frames.steps`."""
        return frames.steps(self.state)

    @cached_property
    def schedules(self) -> pd.DataFrame:
        return frames.schedules(self.state)

    @cached_property
    def drawn(self) -> pd.DataFrame:
        return frames.drawn(self.search, self.state)

    @cached_property
    def find(self) -> ArtifactReader | None:
        return ArtifactStore(Folder(self.run.storage)).find

    @cached_property
    def sample_grids(self) -> tuple[_sample_grid.SampleGrid, ...] | str:
        if "samples" not in self.metadata.figures:
            return ()
        return _sample_grid.of(self.search, self.selected, has_run=self._has_run)

    def compare(
        self,
        one: str | None = None,
        other: str | None = None,
        *,
        metric: str | None = None,
        within: float | None = None,
        at: str | None = None,
    ) -> Comparison:
        """Whether an arm is better or worse than another, or equivalent within a margin.

        Args:
            one: an arm; without arms it is the contrast that the search declares.
            other: the arm that it is compared with.
            metric: by which arms are compared; that of the answer when None.
            within: margin of equivalence, in units of the metric; that of the search when None.
            at: a cost on the way instead of the end, as in `updates=1200`.
        """
        pair = (one, other) if one and other else self.metadata.compare
        if len(pair) != 2 or (one is None) != (other is None):
            raise ConfigError(
                f"compare({one!r}, {other!r}): {self.name} declares no contrast, or one arm is "
                "missing. Name two arms."
            )
        metric = metric or self.answer_metric
        return self.comparisons_of([pair], metric=metric, within=within, at=at)[0]

    def comparisons_of(
        self,
        pairs: Sequence[tuple[str, str]] | None = None,
        *,
        against: str | None = None,
        metric: str = "test/accuracy",
        within: float | None = None,
        at: str | None = None,
    ) -> list[Comparison]:
        """Comparisons of `pairs`, or of all arms `against` one, adjusted for each other.

        Without either: the contrast that the search declares, or the best arm by validation.
        """
        metadata = self.metadata
        if pairs is not None and against is not None:
            raise ConfigError(f"against={against!r}: `pairs` are given too. Leave one out.")
        if pairs is None and against is None and metadata.compare:
            pairs = [(metadata.compare[0], metadata.compare[1])]
        elif pairs is None:
            first = against or self.best_arm()
            rivals = [arm.name for arm in metadata.arms if not arm.is_tuning]
            pairs = [(first, name) for name in rivals if name != first]
        if not pairs:
            raise ConfigError(f"a comparison has two arms, but {self.name} has one.")
        within = metadata.within if within is None else within
        data = self if at is None else self.at(at, needs=metric)
        return data.compared(pairs, metric, within)

    def best_arm(self) -> str:
        """The arm whose selected trials have the best mean by the search's metric on validation."""
        metric = self.metadata.metric
        if arms := self.verdict(metric).ranked:
            return arms[0]
        why = f"no finished trial of {self.name} has reported {metric}"
        raise DataMissingError(f"{why}. Name an arm.")

    def selected_trial(self, arm: str, seed: int | None = None) -> TrialId:
        """The selected trial of an arm, of its first seed by default."""
        rows = self.selected if seed is None else self.selected[self.selected["seed"] == seed]
        own = rows[rows["arm"] == arm]
        if own.empty:
            raise UnknownNameError("arm with a finished trial", arm, rows["arm"].unique())
        return TrialId.parse(str(own.iloc[0]["trial"]))

    def best(self, arm: str | None = None, seed: int | None = None) -> Best:
        """The selected trial of an arm, of its first seed by default.

        Without an arm it is that of the best arm by validation, or of the only arm that searches.
        """
        searching = [one.name for one in self.metadata.arms if one.trials_per_seed > 1]
        arm = arm or (searching[0] if len(searching) == 1 else self.best_arm())
        trial = self.selected_trial(arm, seed)
        row = self.selected[self.selected["trial"] == str(trial)].iloc[0]
        own, usual = self.metadata.metric, self.answer_metric
        metric = usual if pd.isna(row.get(own)) else own
        drawn = self.drawn[self.drawn["trial"] == str(trial)]
        pairs = zip(drawn["name"], drawn["value"], strict=True)
        params = {k: int(v) if isinstance(v, float) and v == int(v) else v for k, v in pairs}
        score = float(row.get(metric, math.nan))
        return Best(arm, trial.seed, trial, params, metric, score, self)

    def plot(self, request: str | None = None) -> "Figure":
        """A figure of the report, such as `accuracy` or `accuracy:val/nll`.

        Without a request it shows the scores of all arms, by the metric of the answer.
        """
        from tuneparts.results.figures.drawing import Note
        from tuneparts.results.figures.gallery import draw

        drawing = draw(request or f"scores:{self.answer_metric}", self)
        if isinstance(drawing, Note):
            raise DataMissingError(f"`{request}` cannot be drawn: {drawing.text}")
        return drawing.figure

    def __repr__(self) -> str:
        return f"Results({self.name}): {self.answer}"

    def _repr_html_(self) -> str:
        table = self.tables[0]
        few = tuple(column for column in table.columns if not column.detail)
        small = rendering._to_html(replace(table, columns=few, notes=()))
        return f"<p>{escape(self.answer)}</p>{small}"

    def report(self) -> Path:
        """Write the report; returns the path of its page."""
        return self.write_report()["report.html"]

    def write_report(self) -> dict[str, Path]:
        from tuneparts.results.page import _write_svgs

        return self.write(self._report_folder) | _write_svgs(self._report_folder)

    @property
    def _report_folder(self) -> Path:
        return atomic.inside(self.run.folder, self.run.folder / "report" / "figures").parent

    def keep_model(self, trial: TrialId) -> str:
        """Log the final net of a trial to its MLflow run, unless it is there; returns its URI."""
        import numpy as np

        from tuneparts.executors.setting import trial_data
        from tuneparts.tracking import models, store

        uri = store.resolve(settings.current().tracking_uri)
        run_id = self.run_ids.get(trial)
        if run_id is None:
            raise DataMissingError(f"{trial} is not in MLflow yet: `tuneparts sync {self.name}`.")
        if (found := models.logged(uri, run_id)) is not None:
            return found
        code = self.run.folder / "code"
        brought = sorted(code.iterdir()) if code.is_dir() else []
        with self.run.code.importable():
            module = self.learner(trial).final_module()  # an objective has none, and says so
            task = trial_data(self.search, trial, self.state.trials[trial].config)
            example = np.asarray(task.test.inputs[:4])
            return models.log(uri, run_id, module, example, code=brought)

    def learner(self, trial: TrialId) -> "Learner":
        """A trial's learner in its last state, on the CPU."""
        from tuneparts.executors.setting import restore_learner

        if trial not in self.state.trials:
            raise DataMissingError(f"{self.run.name} has no trial {trial}.")
        config = self.state.trials[trial].config
        with self.run.code.importable():
            return restore_learner(self.search, self.run.storage, trial, config)

    def export(self, to: str, out: Path | None = None) -> list[Path]:
        """Write the run for other programs; files of an earlier export are replaced.

        Args:
            to: `optuna`: a storage with one study per arm; `csv` or `parquet`: trials and steps;
                `results`: what `tuneparts report` and `compare` need, to be published.
            out: The storage (`.db` for SQLite, anything else for Optuna's journal), or for the
                others a folder; in the run's folder `export` when None.
        """
        from tuneparts.results.export import _export

        return _export(self, to, out)

    def description(self) -> str:
        """The answer and as many tables in Markdown as MLflow takes."""
        text = self.answer
        for table in self.tables:
            longer = f"{text}\n\n{rendering.to_markdown([table])}"
            if len(longer) > _LONGEST_DESCRIPTION:
                return text
            text = longer
        return text
