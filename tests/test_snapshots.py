"""The face of the package, written down, so that a change to it is seen in review.

`SNAPSHOT_WRITE=1 pytest tests/test_snapshots.py` writes it anew: read the difference.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import tuneparts
from tuneparts.cli.main import app

HERE = Path(__file__).parent / "snapshots"
PASSING = ("mlflow.user", "mlflow.source", "mlflow.parentRunId", "tuneparts.commit")
"""Tags whose values differ from run to run, or from checkout to checkout."""


def test_the_help_of_every_verb() -> None:
    verbs = sorted(_verbs(typer.main.get_command(app)))
    text = "\n".join(f"$ tuneparts {' '.join(verb)} --help\n{_help(verb)}" for verb in verbs)
    assert text == _kept("help.txt", text)


def test_the_fields_of_a_search() -> None:
    schema = json.dumps(tuneparts.Search.model_json_schema(), indent=1, sort_keys=True) + "\n"
    assert schema == _kept("search_schema.json", schema)


@pytest.mark.mlflow
def test_what_a_search_writes_into_an_mlflow_store(results: Path) -> None:
    config = tuneparts.Standard(steps=4, interval=2, net="mlp")
    arms = (
        tuneparts.Arm(
            name="random",
            config=config,
            algorithm=tuneparts.RandomSearch(num_trials=2),
            space={"optimiser.lr": tuneparts.Uniform(low=1e-4, high=1e-1, log=True)},
        ),
        tuneparts.Arm(name="usual", config=config),
    )
    search = tuneparts.Search(
        name="snapshot",
        question="What is written?",
        scale="smoke",
        data=tuneparts.data.Data(name="digits", num_train=60, num_val=20, num_test=20),
        metric="val/accuracy",
        steps=4,
        seeds=(0, 1),
        arms=arms,
    )
    tuneparts.run(search, workers=1)
    text = json.dumps(list(_logged(results)), indent=1, sort_keys=True) + "\n"
    assert text == _kept("mlflow.json", text)


def _verbs(command: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield prefix
    for name, verb in getattr(command, "commands", {}).items():
        yield from _verbs(verb, (*prefix, name))


def _help(verb: tuple[str, ...]) -> str:
    return CliRunner().invoke(app, [*verb, "--help"], env={"COLUMNS": "100"}).stdout


def _logged(results: Path) -> Iterator[dict[str, Any]]:
    """Every run of the store: names and values that are the same each time, names of the others."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{results / 'mlflow.db'}")
    experiments = [one.experiment_id for one in client.search_experiments()]
    for run in sorted(
        client.search_runs(experiments), key=lambda one: one.data.tags["mlflow.runName"]
    ):
        tags = {
            name: value if value.replace(".", "").isalpha() else "..."
            for name, value in run.data.tags.items()
            if not name.startswith(PASSING)
        }
        yield {
            "status": run.info.status,
            "tags": tags,
            "params": sorted(run.data.params),
            "metrics": sorted(run.data.metrics),
            "artifacts": sorted(one.path for one in client.list_artifacts(run.info.run_id)),
        }


def _kept(name: str, found: str) -> str:
    path = HERE / name
    if os.environ.get("SNAPSHOT_WRITE"):
        path.write_text(found)
    return path.read_text()
