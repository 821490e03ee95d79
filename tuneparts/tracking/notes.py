"""What MLflow shows as the description of an experiment, a search's run and a trial.

Links are fragments of the UI's own address, so they work wherever the UI is served.
"""

import json

from tuneparts.journal import TrialId
from tuneparts.tracking.card import KIND_TAG, SELECTED_TAG, SearchCard

VIEW_KEY = "arms"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"
"""MLflow's own tag for a view of an experiment that a link can open."""
_REPORT = "report/report.html"


def view_state() -> str:
    """A view for `VIEW_TAG`: the trials, averaged by arm in the charts."""
    state = {
        "searchFilter": f"tags.`{KIND_TAG}` = 'trial'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": "arm"}],
        },
        "runsHiddenMode": "SHOWALL",
        "hideEmptyCharts": True,
        "chartsSearchFilter": "accuracy|nll|loss",  # costs and the rest by clearing it
    }
    return json.dumps(state)


def of_experiment(card: SearchCard, experiment_id: str) -> str:
    """The question, and the ways to look at the trials."""
    return f"{card.question}\n\n{_ways(experiment_id)}"


def of_search(card: SearchCard, experiment_id: str, run_id: str, answer: str | None) -> str:
    """The question with its answer once there is one.

    Args:
        card: The search.
        experiment_id: The experiment of the run.
        run_id: The parent run.
        answer: Markdown; None while the search runs.
    """
    if answer is None:
        state = "Running, or interrupted: `tuneparts dashboard` shows how far it is."
    else:
        link = f"**[Report]({_artifact(experiment_id, run_id)})** with every figure and table."
        state = f"{link}\n\n{answer}"
    return f"{card.question}\n\n{state}\n\n{_ways(experiment_id)}"


def of_trial(card: SearchCard, experiment_id: str, parent: str, trial: TrialId) -> str:
    """Which trial of which search it is, with the way to the report."""
    return (
        f"Trial {trial.index} of arm `{trial.arm}`, seed {trial.seed}, of search `{card.name}` "
        f"({card.scale}).\n\n[Report of the search]({_artifact(experiment_id, parent)})"
    )


def _artifact(experiment_id: str, run_id: str) -> str:
    return f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{_REPORT}"


def _ways(experiment_id: str) -> str:
    view = f"viewStateShareKey={VIEW_KEY}&compareRunsMode=CHART&workflowType=machine_learning"
    charts = f"#/experiments/{experiment_id}/runs?{view}"
    return (
        f"- [Charts, averaged by arm]({charts})\n"
        f"- one arm: filter by `tags.arm = 'NAME'`\n"
        f"- the trial that stands for each arm and seed: filter by `tags.{SELECTED_TAG} = 'yes'`"
    )
