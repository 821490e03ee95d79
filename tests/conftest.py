import gc
import os
import re
import shutil

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

gc.disable()  # until all tests are collected: they stay to the end
pytest.register_assert_rewrite("tuneparts.testing")  # a failed law shows the values

# The same examples in every run: a failure is never a matter of luck.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest as a group comes first: it waits more than it computes."""
    first = ("ray", "browser")
    for item in items:
        if any(item.get_closest_marker(name) for name in (*first, "slow")):
            # Ray, Playwright and servers of their own: what they deprecate is theirs to mend.
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in first])


def pytest_collection_finish() -> None:
    """From now on there is garbage, and what was collected need not be searched for it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)  # known to pytest-xdist only
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps tests on one worker that share something costly."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)


RAY_FILES = (
    "tests/integration/",
    "tests/executors/test_ray",
    "tests/executors/test_cluster",
    "tests/ray/",
    "tests/examples/test_tune_",
)


def group_of(nodeid: str) -> str:
    """The group of a test in a parallel run; a group stays on one worker.

    Tests of Ray share one Ray, tests of a file the fixtures of the file, and the contract is
    checked method by method.
    """
    file, _, rest = nodeid.partition("::")
    if file.startswith(RAY_FILES):
        return "ray"
    method = re.search(r"\[(\w+)", rest)
    if file == "tests/contracts/test_learners.py" and method:
        return f"{file}[{method[1]}"
    return file


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tiny tensors are far faster on one thread."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def template_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow store to copy: making one takes seconds, copying it a moment."""
    from tuneparts.tracking import store

    path = tmp_path_factory.mktemp("template") / "mlflow.db"
    store.client(f"sqlite:///{path}")
    return path


@pytest.fixture
def uri(template_store: Path, tmp_path: Path) -> str:
    """An MLflow store that a test has to itself."""
    shutil.copy(template_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture
def results(template_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of results with a store that is ready, as commands of this test find it."""
    empty_results(tmp_path, template_store, monkeypatch)
    return tmp_path


def empty_results(folder: Path, template_store: Path, patch: pytest.MonkeyPatch) -> None:
    """Let commands keep their results in this folder, and in a store that lies there."""
    shutil.copy(template_store, folder / "mlflow.db")
    patch.setenv("TUNEPARTS_RESULTS", str(folder))
    for name in ("TUNEPARTS_TRACKING_URI", "MLFLOW_TRACKING_URI"):
        patch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def run_here() -> Callable[..., Iterator[None]]:
    """Runs a search in this process, one report at a time.

    The returned function gives an iterator that pauses after each report, so that a test can look
    at a search that is under way; exhaust it to finish.
    """
    return _run_here


def _run_here(run: Any, *observers: Any) -> Iterator[None]:
    from tuneparts.executors import _local
    from tuneparts.executors.setting import TrialSetting
    from tuneparts.search.journal import Journal
    from tuneparts.search.plan import Plan

    search = run.search
    journal = Journal(run.folder / "journal.jsonl")
    plan = Plan(search, journal, observers)
    for _ in _local.in_this_process(plan, TrialSetting.of(search, run.storage)):
        yield
    assert plan.done
    journal.close()


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """One Ray for all tests that need no other."""
    from tests.harness.scene import python_path
    from tuneparts.executors.ray import cluster

    os.environ.update(cluster.ENVIRONMENT)
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", python_path())  # workers import from the tests
        options = {"num_gpus": 1, "log_to_driver": False, "include_dashboard": False}
        ray.init(address="local", num_cpus=2, **options)  # a GPU in name, to be counted
    yield
    ray.shutdown()


@pytest.fixture
def null_search() -> Callable[..., Any]:
    """Makes a search over learners that do nothing."""
    from tuneparts.data.config import Data
    from tuneparts.search.spec import Scale, Search

    def make(*arms: Any, **fields: Any) -> Search:
        values = {
            "name": "null",
            "question": "Does it run?",
            "scale": Scale.SMOKE,
            "data": Data(name="digits", num_train=20, num_val=10, num_test=10),
            "metric": "val/accuracy",
            "steps": 8,
            "seeds": (0,),
        }
        return Search(**{**values, **fields}, arms=arms)

    return make


@pytest.fixture
def null_arm() -> Callable[..., Any]:
    """Makes an arm whose learners do nothing."""
    from tests.harness.faulty import FaultyConfig
    from tuneparts.search.arm import Arm
    from tuneparts.search.space import Uniform

    def make(name: str, **fields: Any) -> Arm:
        taken = {key: fields.pop(key) for key in ("hypers_from", "config_from") if key in fields}
        config = FaultyConfig(steps=8, interval=2, **fields.pop("config", {}), **taken)
        if "algorithm" in fields:
            fields.setdefault("space", {"x": Uniform(low=0.0, high=1.0)})
        return Arm(name=name, config=config, **fields)

    return make
