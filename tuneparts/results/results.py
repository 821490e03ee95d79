"""What a run has found: what `RunData` derives from its frames, its report, exports and nets."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tuneparts.core import atomic, settings
from tuneparts.core.errors import ConfigError, DataMissingError, UnknownNameError
from tuneparts.results import _sample_grid, rendering
from tuneparts.results.compare import Comparison
from tuneparts.results.run_data import ArtifactReader, RunData
from tuneparts.search import frames, runs
from tuneparts.search.card import RunCard
from tuneparts.search.checkpoints import ArtifactStore
from tuneparts.search.events import TrialId
from tuneparts.search.spec import Search
from tuneparts.search.state import RunState
from tuneparts.search.storage import Folder
from tuneparts.tracking import record

if TYPE_CHECKING:  # slow to import, and not every reader needs them
    from plotly.graph_objects import Figure
    from torch import nn

    from tuneparts.training.learner import Learner

_LONGEST_DESCRIPTION = 7000
"""Characters of a description; MLflow keeps 8,000 of a tag."""


def load(name: str | None = None) -> "Results":
    """Read the results of a run, finished or not.

    Args:
        name: `SEARCH/TIME-DIGEST`, or a search's name for its newest run; None for the newest of
            all. Or the folder of published results. A run of which no trial ever ran is found by
            its full name only.
    """
    from tuneparts.results.export import Published, _is_published

    if name is not None and _is_published(name):
        return Published(Path(name))
    return Results(runs.named(settings.current().results_dir, name, begun=True))


class Results(RunData):
    """What a run has found so far; frames, tables, figures and verdicts are those of `RunData`.

    A run that goes on needs a new object: this one shows the journal as it was first read.
    """

    run: runs.Run
    name: str
    _has_run: bool

    def __init__(self, run: runs.Run, *, has_run: bool = False) -> None:
        vars(self).update(run=run, name=run.name, _has_run=has_run)

    @property
    def search(self) -> Search:
        """The resolved search, as it was when the run began, or was last extended."""
        return self.run.search

    @cached_property
    def search_facts(self) -> dict[str, Any]:
        """The resolved search as plain values, without its classes."""
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
        """What the journal says, parsed once for all that is made from it."""
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
        pairs: Sequence[tuple[str, str]] | None = None,
        *,
        against: str | None = None,
        metric: str = "test/accuracy",
        within: float | None = None,
        at: str | None = None,
    ) -> list[Comparison]:
        """Verdicts on pairs of arms: better, worse, equivalent within a margin, or cannot tell.

        Args:
            pairs: the comparisons; they are adjusted for each other.
            against: compare this arm with every rival instead. Without either, it is the contrast
                that the search declares, or the arm with the best validation score.
            metric: by which arms are compared.
            within: margin of equivalence, in units of the metric; that of the search when None.
            at: a cost on the way instead of the end, as in `updates=1200`.
        """
        metadata = self.metadata
        if pairs is not None and against is not None:
            raise ConfigError("comparisons are given as pairs or `against` one arm, but got both.")
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
        """The arm whose selected trials have the best mean score by the search's metric.

        Test scores have no say. An arm without the metric, such as one that trains on all the
        data, cannot be the best.
        """
        metric = self.metadata.metric
        if arms := self.verdict(metric).ranked:
            return arms[0]
        raise DataMissingError(
            f"no finished trial of {self.name} has reported {metric}. Name an arm."
        )

    def selected_trial(self, arm: str, seed: int | None = None) -> TrialId:
        """The trial that stands for an arm, of its first seed by default."""
        rows = self.selected if seed is None else self.selected[self.selected["seed"] == seed]
        own = rows[rows["arm"] == arm]
        if own.empty:
            raise UnknownNameError("arm with a finished trial", arm, rows["arm"].unique())
        return TrialId.parse(str(own.iloc[0]["trial"]))

    def best(self, arm: str) -> pd.DataFrame:
        """The selected trial of each seed of an arm: its config, scores and hypers."""
        self.selected_trial(arm)  # refuses a name that is not there
        return self.selected[self.selected["arm"] == arm].set_index("seed")

    def figure(self, request: str) -> "Figure":
        """A figure of the report, such as `accuracy` or `accuracy:val/nll`."""
        from tuneparts.results.figures.drawing import Note
        from tuneparts.results.figures.gallery import draw

        drawing = draw(request, self)
        if isinstance(drawing, Note):
            raise DataMissingError(f"`{request}` cannot be drawn: {drawing.text}")
        return drawing.figure

    def report(self) -> Path:
        """Write the report; returns the path of its page."""
        return self.write_report()["report.html"]

    def write_report(self) -> dict[str, Path]:
        """Write page, tables and figures into the folder of reports; returns their paths."""
        from tuneparts.results.page import _write_svgs

        return self.write(self._report_folder) | _write_svgs(self._report_folder)

    @property
    def _report_folder(self) -> Path:
        return atomic.inside(self.run.folder, self.run.folder / "report" / "figures").parent

    def net(self, arm: str, seed: int | None = None) -> "nn.Module":
        """The trained net of a `selected_trial`, from inputs as the data holds them to logits."""
        return self.learner(self.selected_trial(arm, seed)).final_module()

    def keep_model(self, trial: TrialId) -> str:
        """Log the final net of a trial to its MLflow run, unless it is there; returns its URI."""
        import numpy as np

        from tuneparts.executors.worker import trial_data
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
        from tuneparts.executors.worker import restore_learner

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
