"""Any function as an arm: its three forms, what is refused, and resuming in the middle."""

import functools
import itertools
import json
import math
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from rich.console import Console

import tuneparts
from tuneparts.cli import _estimate
from tuneparts.core import schema
from tuneparts.core.config import parse
from tuneparts.core.errors import CheckpointError, ConfigError, DivergedError
from tuneparts.core.schema import Direction, Metric
from tuneparts.data.task import NO_DATA
from tuneparts.executors import Place, _local, execute
from tuneparts.executors.setting import TrialSetting
from tuneparts.methods.objective import Objective, Trial
from tuneparts.results.running import tracking_card
from tuneparts.search import runs
from tuneparts.search.algorithms.base import Fixed, RandomSearch, draw
from tuneparts.search.algorithms.halving import Asha
from tuneparts.search.algorithms.pbt import Pbt
from tuneparts.search.arm import Arm
from tuneparts.search.journal import Journal, records
from tuneparts.search.plan import Plan
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context

LOSS = {"val/loss": "min"}
CALLS: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def own_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(schema, "METRICS", dict(schema.METRICS))
    CALLS.clear()


def parabola(config: dict[str, Any]) -> float:
    CALLS.append(config)
    return (config["x"] - 0.3) ** 2 + config["seed"] / 100


def descent(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Noisy gradient descent on a parabola."""
    rng = np.random.default_rng(config["seed"])
    x = 1.0
    for _ in itertools.count():
        CALLS.append(config)
        x -= config["lr"] * (2 * x + 0.1 * rng.normal())
        yield {"val/loss": x**2, "test/x": x}


def reporting_descent(config: dict[str, Any], report: Any) -> None:
    """The same, by calls."""
    for row in descent(config):
        report(row)


class Descent:
    """The same, with a state."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.lr, self.x = config["lr"], 1.0
        self.rng = torch.Generator().manual_seed(config["seed"])

    def advance(self) -> dict[str, float]:
        CALLS.append({"lr": self.lr})
        self.x -= self.lr * (2 * self.x + 0.1 * torch.randn((), generator=self.rng).item())
        return {"val/loss": self.x**2, "test/x": self.x}

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x, "rng": self.rng.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.x = state["x"]
        self.rng.set_state(state["rng"])


class Stateless:
    """Counts down from `x`, then has no more to do."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.left = config["x"]

    def advance(self) -> float | None:
        self.left -= 1
        return self.left if self.left >= 0 else None


class HalfState(Stateless):
    def state_dict(self) -> dict[str, Any]:
        return {}


class Hoarder(Descent):
    def state_dict(self) -> dict[str, Any]:
        return {"deep": [{"rng": np.random.default_rng()}]}


def returns(config: dict[str, Any]) -> Any:
    return RETURNED[config["what"]]


RETURNED: dict[str, Any] = {
    "string": "good",
    "nothing": None,
    "nan": math.nan,
    "inf": {"val/loss": torch.tensor(math.inf)},
    "undeclared": {"val/loss": 1.0, "val/lost": 2.0},
    "missing": {"test/x": 1.0},
    "word": {"val/loss": "low"},
    "array": {"val/loss": np.zeros(3)},
    "list": [1.0],
}


def no_argument() -> float:
    return 0.0


def only_report(report: Any) -> None:
    report(0.0)


def two_then(config: dict[str, Any], report: Any) -> float | None:
    """Reports twice, and then what `end` says."""
    CALLS.append({"thread": threading.current_thread()})
    try:
        report(2.0)
        report(1.0)
    finally:
        CALLS.append({"closed": True})
    if config["end"] == "raise":
        raise RuntimeError("no luck")
    return 0.5 if config["end"] == "return" else None


def forgetful(config: dict[str, Any]) -> Iterator[float]:
    while True:
        yield random.SystemRandom().random()


def objective(function: Any = parabola, **options: Any) -> Objective:
    return Objective(function=function, **({"reports": LOSS} | options))


def start(config: Objective, seed: int = 0) -> Any:
    return config.build(Context(task=NO_DATA, seed=seed, device=torch.device("cpu")))


def rows_of(learner: Any) -> list[float]:
    found = {}
    while not learner.finished:
        row = learner.advance()
        found[row["cost/steps"]] = row["val/loss"]
    return list(found.values())


def search_of(*arms: Arm, **options: Any) -> Search:
    facts: dict[str, Any] = {"metric": "val/loss", "steps": arms[0].config.steps, "seeds": (0, 1)}
    return Search(name="mine", question="?", scale=Scale.CPU, arms=arms, **(facts | options))


def descents(function: Any, algorithm: Any) -> Search:
    reports = {"val/loss": "min", "test/x": "none"}
    config = objective(function, params={"lr": 0.1}, reports=reports, steps=8)
    space = {} if isinstance(algorithm, Fixed) else {"lr": Uniform(0.01, 0.4)}
    return search_of(Arm(name="arm", config=config, algorithm=algorithm, space=space))


def facts(folder: Path) -> dict[str, Any]:
    return {
        str(trial): (
            list(record.configs),
            {
                step: {k: v for k, v in row.metrics.items() if k != "cost/seconds"}
                for step, row in sorted(record.rows.items())
            },
            record.end and (record.end.outcome, record.end.message),
        )
        for trial, record in sorted(records(folder / "journal.jsonl").items())
    }


def run(search: Search, folder: Path, **options: Any) -> dict[str, Any]:
    place = Place("local", workers=options.pop("workers", 1))
    ending = execute(search, folder=folder, place=place, **options)
    assert ending == "done"
    return facts(folder)


def test_a_search_of_a_function_is_a_loop_over_its_draws(tmp_path: Path) -> None:
    space = {"x": Uniform(-1, 1)}
    arm = Arm(name="arm", config=objective(), algorithm=RandomSearch(5), space=space)
    search = search_of(arm)
    found = run(search, tmp_path)
    expected = {
        f"arm/seed{seed}/{index:05d}": parabola(
            {"x": draw(search.arms[0], seed, index)["params.x"], "seed": seed}
        )
        for seed in (0, 1)
        for index in range(5)
    }
    assert {trial: rows[1]["val/loss"] for trial, (_, rows, _) in found.items()} == expected
    assert {end for _, _, end in found.values()} == {("finished", "")}


@pytest.mark.parametrize("function", [descent, reporting_descent, Descent])
def test_each_report_is_a_step(function: Any, tmp_path: Path) -> None:
    found = run(descents(function, Fixed()), tmp_path)
    made = (Descent if function is Descent else descent)({"lr": 0.1, "seed": 1})
    expected = [made.advance() if function is Descent else next(made) for _ in range(8)]
    rows = found["arm/seed1/00000"][1]
    assert rows == {
        step: {**row, "cost/steps": float(step)} for step, row in enumerate(expected, start=1)
    }


def test_a_search_does_not_thin_out_reports() -> None:
    arms = {"arm": objective(Stateless, params={"x": 3}), "own": objective(Stateless, interval=4)}
    search = Search(name="mine", arms=arms, steps=100, interval=50, metric="val/loss")
    assert [arm.config.interval for arm in search.arms] == [1, 4]


def test_of_an_interval_the_last_report_is_kept() -> None:
    options = {"reports": {"val/loss": "min", "test/x": "none"}, "params": {"lr": 0.1}}
    each, third = (start(objective(descent, steps=8, interval=n, **options)) for n in (1, 3))
    rows = [each.advance() for _ in range(8)]
    assert [third.advance() for _ in range(3)] == [rows[2], rows[5], rows[7]]
    assert third.finished


def test_an_objective_may_end_before_its_budget(tmp_path: Path) -> None:
    config = objective(Stateless, params={"x": 3}, steps=100)
    found = run(search_of(Arm(name="arm", config=config), seeds=(0,)), tmp_path)
    _, rows, end = found["arm/seed0/00000"]
    assert [row["val/loss"] for row in rows.values()] == [2.0, 1.0, 0.0]
    assert end == ("finished", "")
    assert run(search_of(Arm(name="arm", config=config), seeds=(0,)), tmp_path) == found


@pytest.mark.parametrize(("end", "expected"), [("return", [2.0, 1.0, 0.5]), ("", [2.0, 1.0])])
def test_what_a_function_returns_after_its_reports_is_the_last(end: str, expected: Any) -> None:
    assert rows_of(start(objective(two_then, params={"end": end}, steps=9))) == expected


def test_what_a_function_raises_between_reports_is_raised() -> None:
    learner = start(objective(two_then, params={"end": "raise"}, steps=9))
    assert [learner.advance()["val/loss"] for _ in range(2)] == [2.0, 1.0]
    with pytest.raises(RuntimeError, match="no luck"):
        learner.advance()


def test_a_function_that_nobody_waits_for_ends() -> None:
    learner = start(objective(two_then, params={"end": ""}, steps=9))
    learner.advance()
    del learner
    CALLS[0]["thread"].join(timeout=10)
    assert not CALLS[0]["thread"].is_alive()
    assert CALLS[1] == {"closed": True}


@pytest.mark.parametrize("cut_after", [1, 11])
@pytest.mark.parametrize(
    ("function", "algorithm"),
    [
        (descent, Fixed()),
        (reporting_descent, Fixed()),
        (Descent, Fixed()),
        (descent, Asha(4, min_steps=2, reduction=2)),
        (Descent, Asha(4, min_steps=2, reduction=2)),
        (Descent, Pbt(population=4, num_rounds=4)),
    ],
    ids=lambda value: getattr(value, "__name__", getattr(value, "kind", "")),
)
def test_a_cut_in_the_middle_gives_the_same_journal(
    function: Any, algorithm: Any, cut_after: int, tmp_path: Path
) -> None:
    search = descents(function, algorithm)
    whole = run(search, tmp_path / "whole")
    folder = tmp_path / "cut"
    folder.mkdir()
    journal = Journal(folder / "journal.jsonl")
    setting = TrialSetting.of(search, runs.default_storage(folder))
    reports = _local.in_this_process(Plan(search, journal), setting)
    assert len(list(itertools.islice(reports, cut_after))) in {cut_after, 16}
    journal.close()
    assert run(search, folder) == whole


def test_a_pool_gives_the_journal_of_this_process(tmp_path: Path) -> None:
    search = descents(descent, Asha(4, min_steps=2, reduction=2))
    found = run(search, tmp_path / "one")
    assert run(search, tmp_path / "two", workers=2) == found


def resumed_after(config: Objective, num: int) -> Any:
    before, after = start(config), start(config)
    for _ in range(num):
        before.advance()
    after.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(before.state_dict())))
    CALLS.clear()
    return after


def of_trial(trial: Any) -> float:
    x = trial.suggest_float("x", -1, 1)
    for step in range(2):
        trial.report(x + step, step)
        assert not trial.should_prune()
    trial.suggest_int("n", 1, 4, step=1)
    return x + trial.suggest_categorical("add", [10, 20]) + trial.seed


def started_trials(trial: Any) -> Iterator[float]:
    for step in range(3):
        yield trial.suggest_float("x", -1, 1) + step


@pytest.mark.parametrize(
    ("function", "steps", "expected"),
    [
        (of_trial, 1, [21.5]),
        (of_trial, 9, [0.5, 1.5, 21.5]),
        (of_trial, 2, [0.5, 1.5]),
        (started_trials, 9, [0.5, 1.5, 2.5]),
    ],
)
def test_a_function_of_a_trial_gets_what_was_drawn(
    function: Any, steps: int, expected: Any
) -> None:
    params = {"x": 0.5, "n": 2, "add": 20}
    assert rows_of(start(Objective(function, params=params, steps=steps), seed=1)) == expected


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n": 2, "add": 20}, r"float\('x', -1, 1\): is not in the space.*nested Choice"),
        ({"x": 2.0, "n": 2, "add": 20}, r"float\('x', -1, 1\): is 2.0"),
        ({"x": 0.5, "n": 9, "add": 20}, r"int\('n', 1, 4\): is 9"),
        ({"x": 0.5, "n": 2, "add": 30}, r"categorical\('add', \(10, 20\)\): is 30"),
    ],
)
def test_a_trial_refuses_what_the_space_does_not_have(params: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        start(Objective(of_trial, params=params)).advance()


def test_a_trial_names_what_it_has() -> None:
    with pytest.raises(AttributeError, match=r"trial.number: is not supported. Use suggest_float"):
        _ = Trial({"seed": 0}).number


def test_only_an_objective_without_state_runs_again_from_its_start() -> None:
    options = {"reports": {"val/loss": "min", "test/x": "none"}, "params": {"lr": 0.1}}
    for function, num_calls in ((descent, 4), (Descent, 1)):
        learner = resumed_after(objective(function, steps=8, **options), 3)
        assert learner.steps == 3
        learner.advance()
        assert len(CALLS) == num_calls


def test_a_state_that_was_loaded_but_not_used_is_kept() -> None:
    options = {"reports": {"val/loss": "min", "test/x": "none"}, "params": {"lr": 0.1}}
    learner = resumed_after(objective(Descent, steps=8, **options), 3)
    assert learner.state_dict()["objective"]["x"] != 1.0


def test_numbers_that_do_not_come_again_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"report 2 of `.*:forgetful` was .*state_dict"):
        resumed_after(objective(forgetful, steps=8), 2).advance()


def test_a_state_that_could_not_be_loaded_is_refused_when_it_is_made() -> None:
    options = {"reports": {"val/loss": "min", "test/x": "none"}, "params": {"lr": 0.1}}
    learner = start(objective(Hoarder, **options))
    learner.advance()
    with pytest.raises(CheckpointError, match="holds a Generator"):
        learner.state_dict()


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("string", ConfigError, "reported 'good', not a dict of numbers or one number"),
        ("nothing", ConfigError, "reported None"),
        ("nan", DivergedError, "`val/loss` as nan"),
        ("inf", DivergedError, "`val/loss` as inf"),
        ("undeclared", ConfigError, r"reported `val/lost`. Add it to `reports`"),
        ("word", ConfigError, "`val/loss` as 'low'"),
        ("array", ConfigError, "not as a number"),
        ("list", ConfigError, "a dict of numbers"),
    ],
)
def test_what_is_no_report_is_refused_by_name(what: str, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        start(objective(returns, params={"what": what})).advance()


def test_what_could_be_selected_by_is_in_every_report() -> None:
    config = objective(
        returns, params={"what": "missing"}, reports={"val/loss": "min", "test/x": "none"}
    )
    with pytest.raises(ConfigError, match="did not report `val/loss`"):
        start(config).advance()


def test_a_report_that_is_refused_is_a_failed_trial(tmp_path: Path) -> None:
    config = objective(returns, params={"what": "nan"})
    found = run(search_of(Arm(name="arm", config=config), seeds=(0,)), tmp_path)
    outcome, message = found["arm/seed0/00000"][2]
    assert outcome == "failed"
    assert "test_objective:returns` reported `val/loss` as nan" in message


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda config: 0.0, "outside of any function"),
        (functools.partial(parabola), "top level of a module"),
        (Descent({"lr": 0.1, "seed": 0}).load_state_dict, "top level of a module"),
        ("parabola", "package.module:function"),
        (3, "function"),
    ],
)
def test_what_workers_could_not_import_is_refused(function: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        objective(function)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nowhere.at.all:loss", "No module named 'nowhere'"),
        ("math:no_such_name", "no_such_name"),
        ("math:pi", "cannot be called"),
        (no_argument, "called with the dict of its values"),
        (only_report, "called with the dict of its values"),
        (HalfState, "both or none of `state_dict"),
        (Fixed, "has `advance"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(
    function: Any, message: str, tmp_path: Path
) -> None:
    search = search_of(Arm(name="arm", config=objective(function)))
    with pytest.raises(ConfigError, match=message):
        execute(search, folder=tmp_path / "run", place=Place("local", workers=1))
    assert not any(rows for _, rows, _ in facts(tmp_path / "run").values())


def test_a_population_needs_states(tmp_path: Path) -> None:
    search = descents(descent, Pbt(population=4, num_rounds=4))
    with pytest.raises(ConfigError, match="no state for population-based"):
        execute(search, folder=tmp_path / "run", place=Place("local", workers=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"params": {"seed": 3}}, "given by the search's `seeds`"),
        ({"params": {"x": object()}}, "plain values"),
        ({"reports": {}}, "at least 1"),
        ({"function": None}, "`None`: must be a function"),
        ({"reports": {"val/loss": "down"}}, "`min`, `max` or `none`"),
        ({"reports": {"loss": "min"}}, "family/quantity"),
        ({"reports": {"cost/steps": "min"}}, "counted for it"),
        ({"reports": {"val/accuracy": "min"}}, "`val/accuracy` is .*larger is better.* also"),
        ({"reports": (Metric("val/a", Direction.UP, "", 4, "m"),) * 2}, "each metric once"),
    ],
)
def test_a_config_that_cannot_be_meant_is_refused(options: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Objective(**({"function": parabola, "reports": LOSS} | options))


def test_a_function_alone_reports_its_loss() -> None:
    config = Objective(parabola)
    assert config == objective(parabola)
    assert rows_of(start(config.replaced({"params.x": 0.3}))) == [0.0]
    assert Objective(parabola, params={"x": 0.5})["x"] == 0.5


def test_a_search_selects_by_what_all_arms_report() -> None:
    arms = (Arm(name="arm", config=objective()),)
    with pytest.raises(ValidationError, match="`arm` reports val/loss"):
        search_of(*arms, metric="val/accuracy")
    config = objective(reports={"test/loss": "min"})
    with pytest.raises(ValidationError, match="held-out validation data"):
        search_of(Arm(name="arm", config=config), metric="test/loss")


def test_only_arms_without_need_of_data_do_without(null_arm: Any) -> None:
    arm = null_arm("null")
    with pytest.raises(ValidationError, match="`null` learns from data"):
        search_of(arm, metric="val/accuracy")


def test_a_resolved_search_is_read_without_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    search = search_of(
        Arm(name="arm", config=objective(reports={"val/own": "max"})), metric="val/own"
    )
    tree = json.loads(search.model_dump_json().replace("tests.methods.test_objective", "gone"))
    monkeypatch.delitem(schema.METRICS, "val/own")
    again = parse(Search, tree)
    assert again.arms[0].config.function == "gone:parabola"
    assert again.metric == "val/own"
    assert schema.lookup("val/own").direction is Direction.UP


def test_a_builtin_name_keeps_its_meaning() -> None:
    assert objective(reports={"val/nll": "min"}).reports == (schema.lookup("val/nll"),)


def test_the_report_answers_by_the_objective(tmp_path: Path) -> None:
    arm = Arm(name="arm", config=objective(params={"x": 0.3}))
    facts = {"command": "", "commit": "", "versions": {}, "storage": None}
    made = runs.create(tmp_path, search_of(arm, figures=("accuracy:val/loss",)), **facts)
    run(made.search, made.folder)
    results = tuneparts.Results(runs.Run(tmp_path, made.name))
    assert results.answer == "arm has val loss 0.0050 ± 0.0050 (2 seeds); there is no other arm."
    assert [metric.name for metric in results.metadata.metrics] == ["val/loss"]
    assert results.write_report()
    assert tracking_card(made).data is None
    with pytest.raises(ConfigError, match="no model to keep"):
        results.learner(results.selected_trial("arm")).final_module()


def test_the_cost_of_a_search_is_told_before(capsys: pytest.CaptureFixture[str]) -> None:
    space = {"x": Uniform(-1, 1)}
    arm = Arm(name="arm", config=objective(), algorithm=RandomSearch(5), space=space)
    _estimate.print_plan(search_of(arm), Console())
    assert "minutes on one CPU" in capsys.readouterr().out
    assert {-1 < call["x"] < 1 for call in CALLS} == {True}


QUADRATIC = """
import sys, tempfile
from pathlib import Path
import tuneparts as tp
from tuneparts.executors import Place, execute


def quadratic(config):
    return (config["x"] - 0.3) ** 2


arm = tp.Objective(quadratic).searched_by(tp.RandomSearch(3), x=tp.Uniform(-1, 1))
search = tp.Search(name="quadratic", seeds=1, arms={"random": arm})
if __name__ == "__main__":
    execute(search, folder=Path(tempfile.mkdtemp()), place=Place("local", workers=1))
    print("torch" in sys.modules, "pandas" in sys.modules, "mlflow" in sys.modules)
"""


def test_a_search_of_functions_never_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "quadratic.py").write_text(QUADRATIC)
    command = [sys.executable, tmp_path / "quadratic.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["False"] * 3
