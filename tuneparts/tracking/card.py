"""What a search and its trials show in MLflow: tags, params, the data set and descriptions."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tuneparts.core.schema import Metric
from tuneparts.search.card import RunCard
from tuneparts.search.events import TrialId
from tuneparts.search.frames import flat

# Our tags: the key of the run folder, on all runs; `search` or `trial`; the name of the run folder;
# the trial as text; how many trials ended how, as JSON, on parent runs; `yes` on selected trials.
KEY_TAG = "tuneparts.key"
KIND_TAG = "tuneparts.kind"
RUN_TAG = "tuneparts.run"
TRIAL_TAG = "tuneparts.trial"
COUNTS_TAG = "tuneparts.trials"
SELECTED_TAG = "selected"

# MLflow's own tags: which view of an experiment opens, nested runs, descriptions in Markdown, the
# colour of a run in charts, and a view of an experiment that a link can open.
EXPERIMENT_KIND_TAG = "mlflow.experimentKind"
PARENT_TAG = "mlflow.parentRunId"
NOTE_TAG = "mlflow.note.content"
COLOUR_TAG = "mlflow.runColor"
_VIEW_KEY = "arms"
VIEW_TAG = f"mlflow.sharedViewState.{_VIEW_KEY}"

RUNS_VIEW = "workflowType=machine_learning"
"""Query of an address in MLflow's UI: without it some pages open their view for language models."""
REPORT = "report"
"""Folder of the report, in the folder of a run and among the artifacts of its parent run."""
_LONGEST_KEY, _LONGEST_VALUE = 250, 6000
"""Characters that MLflow keeps of a param's name and of its value."""


@dataclass(frozen=True)
class DataFacts:
    """A data set by what determines it; MLflow lists it as an input of each run."""

    name: str
    digest: Callable[[], str]
    """Gives the digest of the examples and splits, once a trial has begun and they were read."""
    config: str
    """The config as JSON text; with it `Data` gives the same examples again."""

    def as_input(self) -> Any:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        source = json.dumps({"tags": json.loads(self.config)})
        data = Dataset(self.name, self.digest(), "code", source, profile=self.config)
        return DatasetInput(data, [InputTag("mlflow.data.context", "training")])


@dataclass(frozen=True)
class SearchCard:
    """What the parent run of a search shows in MLflow: the run's card, and what only MLflow has."""

    kind: ClassVar[str] = "search"
    """What `KIND_TAG` says of the parent run."""
    is_open: ClassVar[bool] = False
    """Whether metrics that the schema does not list are shown too, and configs that change."""
    run: RunCard
    """Its name is that of the MLflow experiment; with arms it is the artifact `metadata.json`."""
    resolved: str = "{}"
    """The resolved search as JSON text; kept as the artifact `search.json`."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """More that should be searchable in MLflow."""
    colours: Mapping[str, str] = field(default_factory=dict)
    """Colour of each arm, the same as in the report."""
    data: DataFacts | None = None
    """The data set, logged as an input of the parent run and of every trial."""
    metric: Metric | None = None
    """What the search selects by; the parent run shows the best of each arm."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """What the parent run shows as params: its arms, methods and budgets; may be nested."""
    user: str = ""

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def metadata(self) -> str:
        """The search as reports describe it, as JSON text; empty where it has no arms."""
        return self.run.to_json() if self.run.arms else ""

    def _shared_tags(self, key: str) -> dict[str, str]:
        """Tags that the parent run and every trial have in common; some are MLflow's own."""
        run = self.run
        tags = {**self.tags, "search": self.name, "scale": run.scale, "digest": run.digest}
        tags |= {"commit": run.commit, KEY_TAG: key}
        tags |= {"mlflow.user": self.user} if self.user else {}
        if run.command:
            tags |= {"mlflow.source.name": run.command, "mlflow.source.type": "LOCAL"}
        if re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", run.commit):
            tags["mlflow.source.git.commit"] = run.commit
        return tags

    def parent_tags(self, key: str, folder: Path) -> dict[str, str]:
        return {
            **self._shared_tags(key),
            **{f"version.{name}": text for name, text in self.run.versions.items()},
            **({"extended": "; ".join(self.run.history)} if self.run.history else {}),
            KIND_TAG: self.kind,
            RUN_TAG: folder.name,
        }

    def run_name(self, trial: TrialId) -> str:
        return str(trial)

    def trial_tags(self, key: str, parent: str, trial: TrialId) -> dict[str, str]:
        return {
            **self._shared_tags(key),
            KIND_TAG: "trial",
            PARENT_TAG: parent,
            TRIAL_TAG: str(trial),
            "arm": trial.arm,
            "seed": str(trial.seed),
            "index": str(trial.index),
            **({COLOUR_TAG: self.colours[trial.arm]} if trial.arm in self.colours else {}),
        }

    def experiment_tags(self, experiment_id: str) -> dict[str, str]:
        """Describe the experiment: the question, and the ways to look at the trials."""
        note = f"{self.run.question}\n\n{_ways_to_look(experiment_id)}"
        return {NOTE_TAG: note, VIEW_TAG: json.dumps(_VIEW)}

    def search_note(self, experiment_id: str, run_id: str, answer: str | None) -> str:
        """Describe the parent run: the question, with its answer (Markdown) once there is one."""
        if answer is None:
            first, state = "Running, or interrupted", "`tuneparts dashboard` shows how far it is."
        else:
            first, state = f"**[Report]({_report_link(experiment_id, run_id)})**", answer
        # MLflow folds all but the first lines, and lets nothing behind the fold be clicked.
        first += f" · [Charts by arm]({_charts_link(experiment_id)})"
        return f"{first}\n\n{self.run.question}\n\n{state}\n\n{_ways_to_look(experiment_id)}"

    def trial_note(self, experiment_id: str, parent: str, trial: TrialId) -> str:
        """Describe the run of a trial: which trial it is, with a link to the report."""
        return (
            f"Trial {trial.index} of arm `{trial.arm}`, seed {trial.seed}, of search "
            f"`{self.name}` ({self.run.scale}).\n\n"
            f"[Report of the search]({_report_link(experiment_id, parent)})"
        )


_VIEW = {
    "searchFilter": f"tags.`{KIND_TAG}` = 'trial'",
    "orderByKey": "attributes.start_time",
    "orderByAsc": False,
    "groupBy": {
        "aggregateFunction": "average",
        "groupByKeys": [{"mode": "tag", "groupByData": "arm"}],
    },
    "runsHiddenMode": "SHOWALL",
    "runListHidden": True,  # it would leave the charts a third of a laptop's screen
    "hideEmptyCharts": True,
    # Clearing it shows costs and the rest; those of the parent run begin with `arm/`.
    "chartsSearchFilter": "^(test|val|train)/.*(accuracy|nll|loss)",
}
"""The value of `VIEW_TAG`: MLflow's list of trials, averaged by arm in the charts."""


def _flatten(config: Mapping[str, Any]) -> dict[str, str]:
    """Turn a config into MLflow params: one per leaf, its path joined by dots; lists are leaves."""
    return {
        # The letters that MLflow takes, and as many of them.
        re.sub(r"[^\w.\- :/]", "_", path)[:_LONGEST_KEY]: _encode(leaf)
        for path, leaf in flat(config).items()
    }


def _encode(value: Any) -> str:
    """Write a JSON value as a param; words stay bare unless they would be decoded: `mlp`, `"1"`."""
    is_bare = isinstance(value, str) and _decode(value) == value
    text = value if is_bare else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def run_link(experiment_id: str, run_id: str, part: str = "") -> str:
    """A run's page, or the list of all runs, as a fragment of the UI's own address."""
    place = "/".join(filter(None, (experiment_id, "runs", run_id, part)))
    return f"#/experiments/{place}?{RUNS_VIEW}"


def _report_link(experiment_id: str, run_id: str) -> str:
    return run_link(experiment_id, run_id, f"artifacts/{REPORT}/report.html")


def _charts_link(experiment_id: str) -> str:
    view = f"viewStateShareKey={_VIEW_KEY}&compareRunsMode=CHART&{RUNS_VIEW}"
    return f"#/experiments/{experiment_id}/runs?{view}"


def _ways_to_look(experiment_id: str) -> str:
    selected = f"filter by `tags.{SELECTED_TAG} = 'yes'`"
    return (
        f"- [Charts, averaged by arm]({_charts_link(experiment_id)})\n- one arm: filter by "
        f"`tags.arm = 'NAME'`\n- the selected trial of each arm and seed: {selected}"
    )
