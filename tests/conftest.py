import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

# The same examples in every run: a failure is never a matter of luck.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups tests for a parallel run (`--dist loadgroup`): one group stays on one worker.

    Ray's tests share one Ray, and those of a file share the fixtures of the file. Ray's come first:
    they wait more than they compute, so the other workers compute meanwhile.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            is_ray = item.get_closest_marker("ray") is not None
            item.add_marker(pytest.mark.xdist_group("ray" if is_ray else item.location[0]))
    items.sort(key=lambda item: item.get_closest_marker("ray") is None)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tiny tensors are far faster on one thread."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def template_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow store to copy: making one takes seconds, copying it a moment."""
    from tuneparts.tracking import store

    path = tmp_path_factory.mktemp("template") / "mlflow.db"
    store.prepare(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def run_here() -> Callable[..., Iterator[None]]:
    """A search in this process instead of on Ray: same plan, journal, learners and shelf.

    The returned function gives an iterator that pauses after each report, so that a test can look
    at a search that is under way; exhaust it to finish.
    """
    return _run_here


def _run_here(run: Any, *observers: Any) -> Iterator[None]:
    from tuneparts import catalog
    from tuneparts.config import parse
    from tuneparts.journal import Journal
    from tuneparts.search import runner
    from tuneparts.search.plan import Plan
    from tuneparts.search.shelf import Shelf
    from tuneparts.search.storage import Folder
    from tuneparts.training.learner import Context

    search = run.search()
    task, shelf = search.data.load(), Shelf(Folder(run.storage()))
    journal = Journal(run.folder / "journal.jsonl")
    plan = Plan(search, journal, observers)
    while (segment := plan.next()) is not None:
        assert segment.round == 0, "only arms without rounds run here"
        config = parse(catalog.config_class(segment.config["method"]), segment.config)
        learner = config.build(
            Context(
                task=task,
                seed=segment.trial.seed,
                device=torch.device("cpu"),
                score_test_always=search.score_test_always,
            )
        )
        while not learner.finished:
            row = {**learner.advance(), "cost/seconds": learner.passes / 100}
            shelf.put(segment, learner.passes, {"learner": learner.state_dict()}, last=False)
            plan.rows(segment, runner.to_rows(segment, [row]))
            yield
        plan.complete(segment, finished=True)
    assert plan.done
    journal.close()
