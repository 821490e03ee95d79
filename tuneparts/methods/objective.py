"""Any function as an arm: the platform searches it, resumes it and logs it as it does a method.

An *objective* takes a dict with the values of the trial and its `seed`. It is one of

- a function that returns a number, or a dict of numbers by metric name: one report;
- a generator function that yields such a dict (or number) again and again: one step each;
- a function `objective(config, report)` that calls `report` with it again and again: one step each;
- a function `objective(trial)` as Optuna has it, see `Trial`;
- a class whose `advance()` returns it, and None when there is no more to do. With `state_dict()`
  and `load_state_dict(state)` a trial that was cut off continues from its state.

Without these two hooks a trial that was cut off runs the objective again from its start, and what
it reported before must come out again, to the last bit.
"""

import inspect
import json
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, ClassVar, Literal, NoReturn, Self

from pydantic import Field, field_validator, model_validator

from tuneparts.core import import_path, schema
from tuneparts.core.errors import CheckpointError, ConfigError, DivergedError
from tuneparts.core.schema import Direction, Metric
from tuneparts.data.task import Task
from tuneparts.training.config import Method
from tuneparts.training.learner import Context

_DIRECTIONS = {"min": Direction.DOWN, "max": Direction.UP, "none": Direction.NONE}
_MEANING = "reported by the objective"


class Objective(Method):
    """Your own function, searched like a method; a space names its values.

    Example:
        >>> config = Objective("math:fsum", params={"x": 0.5})
        >>> config.replaced({"params.x": 0.25})["x"]
        0.25
    """

    method: Literal["tuneparts.methods.objective:Objective"] = (
        "tuneparts.methods.objective:Objective"
    )
    function: str
    """Import path of the objective, `package.module:function`; a function or class is turned into
    its path."""
    params: dict[str, Any] = Field(default_factory=dict)
    """What the objective gets besides the seed; plain values."""
    reports: tuple[Metric, ...] = Field(
        default=(Metric("val/loss", Direction.DOWN, "", 4, _MEANING),), min_length=1
    )
    """All that it reports; `{"val/loss": "min", "test/loss": "min", "val/steps": "none"}` in
    short, and `val/loss` unless given. What is in `val/` or `lml/` and has a direction must be in
    every report."""
    steps: int = Field(default=1, gt=0)
    """Most reports of a trial; an objective may end before."""
    interval: int = Field(default=1, gt=0)
    """Of so many reports in a row the last is kept; every one, whatever the search says."""
    learner = "tuneparts.methods.objective:ObjectiveLearner"
    needs_data: ClassVar[bool] = False

    def __init__(self, function: Any = None, **fields: Any) -> None:
        super().__init__(**{"function": function, **fields})

    def __getitem__(self, name: str) -> Any:
        """One of `params`, so that a constraint reads as the objective does."""
        return self.params[name]

    @field_validator("function", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        if callable(value):
            return import_path.of(value)
        if not (isinstance(value, str) and all(value.partition(":"))):
            raise ValueError(f"`{value}`: must be a function or `package.module:function`")
        return value

    @field_validator("params", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        try:
            return json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise ValueError(f"not plain values, as JSON has them: {error}") from None

    @field_validator("reports", mode="before")
    @classmethod
    def _metrics(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        found = []
        for name, word in value.items():
            if word not in _DIRECTIONS:
                raise ValueError(f"`{name}` is {word!r}: must be `min`, `max` or `none`")
            own = Metric(name, _DIRECTIONS[word], "", 4, _MEANING)
            known = schema.lookup(name) if name in schema.BUILT_IN else own
            found.append(known if known.direction is own.direction else own)  # unit and meaning
        return tuple(found)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        self.model_fields_set.add("interval")  # its reports are not thinned out by a search
        if "seed" in self.params:
            raise ValueError("`seed` is given by the search's `seeds`, so it is not in `params`")
        names = [metric.name for metric in self.reports]
        if len({*names, "cost/steps", "cost/seconds"}) < len(names) + 2:
            raise ValueError(
                f"{names}: an objective reports each metric once, and neither cost/steps nor "
                "cost/seconds, which are counted for it"
            )
        return self

    def declared_metrics(self) -> tuple[Metric, ...]:
        return self.reports

    def check(self, task: Task | None = None, *, copies_state: bool = False) -> None:  # noqa: ARG002
        objective = _found(self.function)
        hooks = [hasattr(objective, name) for name in ("state_dict", "load_state_dict")]
        is_class = inspect.isclass(objective)
        if is_class and (not hasattr(objective, "advance") or any(hooks) != all(hooks)):
            raise ConfigError(
                f"`{self.function}`: a class as objective has `advance()`, and both or none of "
                "`state_dict()` and `load_state_dict(state)`."
            )
        if copies_state and not all(hooks):
            raise ConfigError(
                f"`{self.function}` has no state for population-based training to copy. Make it a "
                "class with `state_dict()` and `load_state_dict(state)`."
            )
        try:
            arguments: list[Any] = [{}, print] if takes(objective, "report") else [{}]
            inspect.signature(objective).bind(*arguments)
        except TypeError as error:
            raise ConfigError(
                f"`{self.function}` is called with the dict of its values, and with `report` if it "
                f"has an argument of this name, but cannot be: {error}."
            ) from None
        except ValueError:
            return  # written in C; it has no signature to look at


class ObjectiveLearner:
    """One run of an objective: a step is one of its reports."""

    def __init__(self, config: Objective, context: Context) -> None:
        self.config = config
        self.steps = 0
        self._context = context
        self._last: dict[str, float] = {}
        self._has_ended = False
        self._state: Mapping[str, Any] | None = None
        """Loaded, and waiting for the objective to start."""
        self._running: Any = None
        self._reports: Iterator[Any] | None = None

    @property
    def finished(self) -> bool:
        return self._has_ended or self.steps >= self.config.steps

    def advance(self) -> Mapping[str, float]:
        if self._reports is None:
            self._reports = self._start()
        for _ in range(min(self.config.interval, self.config.steps - self.steps)):
            report = next(self._reports, None)
            if report is None and self.steps:
                self._has_ended = True
                break
            self._last = self._checked(report)
            self.steps += 1
        return {**self._last, "cost/steps": float(self.steps)}

    def _start(self) -> Iterator[Any]:
        values = {**self.config.params, "seed": self._context.seed}
        with self._context.seeded_globals():  # an import may draw, but only the first in a process
            objective = _found(self.config.function)
        if takes(objective, "trial"):
            of_trial = objective
            reports_often = self.config.steps > 1 and not inspect.isgeneratorfunction(of_trial)

            def objective(values: Any, report: Any = None) -> Any:
                return of_trial(Trial(values, report))
        else:
            reports_often = takes(objective, "report")
        with self._context.seeded_globals():
            made: Any = _calls(objective, values) if reports_often else objective(values)
        if not hasattr(made, "advance"):
            reports = made if isinstance(made, Iterator) else iter([made])
        else:
            self._running, reports = made, _advances(made)
            if self._state is not None:
                made.load_state_dict(self._state)
                return reports
        skipped: Any = None  # what was reported before the trial was cut off
        for start in range(0, self.steps, self.config.interval):
            with self._context.seeded_globals(start):
                for _ in range(start, min(start + self.config.interval, self.steps)):
                    skipped = next(reports, None)
        again = {} if skipped is None else self._checked(skipped)
        if again != self._last:
            raise ConfigError(
                f"report {self.steps} of `{self.config.function}` was {self._last}, and is "
                f"{again} now that it runs again. Draw random numbers from `config['seed']`, or "
                "use a class with `state_dict()` and `load_state_dict(state)`."
            )
        return reports

    def _checked(self, report: Any) -> dict[str, float]:
        names = [metric.name for metric in self.config.reports]
        who = f"`{self.config.function}`"
        if hasattr(report, "__float__") and len(names) == 1:
            report = {names[0]: report}
        if not isinstance(report, Mapping):
            needed = " or one number" if len(names) == 1 else ""
            raise ConfigError(f"{who} reported {report!r:.100}, not a dict of numbers{needed}.")
        found: dict[str, float] = {}
        for name, value in zip(map(str, report), report.values(), strict=True):
            if name not in names and name.rpartition(".")[0] + ".*" not in names:
                raise ConfigError(
                    f'{who} reported `{name}`. Add it to `reports`: `{{"{name}": "min"}}`.'
                )
            try:
                number = float(value) if hasattr(value, "__float__") else None
            except (TypeError, ValueError, RuntimeError):  # an array of several numbers, for one
                number = None
            if number is None:
                raise ConfigError(f"{who} reported `{name}` as {value!r:.100}, not as a number.")
            if not math.isfinite(number):
                raise DivergedError(f"{who} reported `{name}` as {number}.")
            found[name] = number
        for metric in self.config.reports:
            is_needed = metric.selectable and not metric.name.endswith(".*")
            if is_needed and metric.name not in found:
                raise ConfigError(
                    f"{who} did not report `{metric.name}`, by which a search could select, but "
                    f"{list(found)}. Report it every time."
                )
        return found

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any]
        state = {"steps": self.steps, "last": dict(self._last), "ended": self._has_ended}
        if hasattr(self._running, "state_dict"):
            state["objective"] = self._running.state_dict()
            _refuse_unplain(state["objective"], self.config.function)
        elif self._state is not None:
            state["objective"] = self._state
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = int(state["steps"])
        self._last = dict(state["last"])
        self._has_ended = bool(state["ended"])
        self._state = state.get("objective")
        self._running = self._reports = None

    def final_module(self) -> NoReturn:
        raise ConfigError("an objective has no model to keep. Keep another arm's.")

    def artifacts(self) -> Mapping[str, Any]:
        return {}


def _found(path: str) -> Any:
    objective = import_path.find(path)
    if not callable(objective):
        raise ConfigError(f"`{path}` is {objective!r:.100}, which cannot be called.")
    return objective


def _advances(objective: Any) -> Iterator[Any]:
    while (report := objective.advance()) is not None:
        yield report


def takes(objective: Any, name: str) -> bool:
    """Whether an objective has an argument of this name: `report`, or Optuna's `trial`."""
    try:
        return name in inspect.signature(objective).parameters
    except (TypeError, ValueError):  # written in C
        return False


class Trial:
    """What an objective whose argument is called `trial` gets, as in Optuna.

    Its values were drawn before the objective is called, so `suggest_...` returns what the space
    has under this name. With more than one step, each call of `report` is a step, and so is what is
    returned; the algorithm decides which trials go on, so `should_prune()` is always False.
    """

    def __init__(
        self, values: Mapping[str, Any], report: Callable[[Any], None] | None = None
    ) -> None:
        self.params = {name: value for name, value in values.items() if name != "seed"}
        self.seed: int = values["seed"]
        self._report = report

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        return float(self._suggested(name, "float", low, high, step=step, log=log))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        return int(self._suggested(name, "int", low, high, step=step, log=log))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self._suggested(name, "categorical", tuple(choices))

    def report(self, value: float, step: int | None = None) -> None:
        del step  # it is counted
        if self._report is not None:
            self._report(value)

    def should_prune(self) -> bool:
        return False

    def _suggested(self, name: str, kind: str, *ends: Any, **_: Any) -> Any:
        known, value = name in self.params, self.params.get(name)
        if known and (value in ends[0] if kind == "categorical" else ends[0] <= value <= ends[1]):
            return value
        found = repr(value) if known else "not in the space"
        raise ConfigError(
            f"trial.suggest_{kind}({name!r}, {', '.join(map(str, ends))}): is {found}. All trials "
            "draw from one space; where it depends on another value, give a nested Choice."
        )

    def __getattr__(self, name: str) -> Any:
        words = "suggest_float, suggest_int, suggest_categorical, report, should_prune, params"
        raise AttributeError(f"trial.{name}: is not supported. Use {words} or seed.")


class _Abandoned(BaseException):
    """Nobody waits for the next report. Not an `Exception`, so that objectives let it through."""


def _calls(objective: Any, values: dict[str, Any]) -> Iterator[Any]:
    """What a function gives to `report`: it runs in a thread of its own, and waits at each call."""
    turns: SimpleQueue[bool] = SimpleQueue()
    news: SimpleQueue[tuple[Any, BaseException | None, bool]] = SimpleQueue()
    is_abandoned = False

    def wait() -> None:
        if is_abandoned or not turns.get():
            raise _Abandoned

    def report(metrics: Any) -> None:
        news.put((metrics, None, False))
        wait()

    def run() -> None:
        try:
            wait()
            news.put((objective(values, report), None, True))
        except _Abandoned:
            pass
        except BaseException as error:  # whatever it is, the one that asks is to raise it
            news.put((None, error, True))

    threading.Thread(target=run, name="objective", daemon=True).start()
    is_last = False
    try:
        while not is_last:
            turns.put(True)
            metrics, error, is_last = news.get()
            if error is not None:
                raise error
            if not is_last or metrics is not None:
                yield metrics
    finally:
        is_abandoned = True
        turns.put(False)


def _refuse_unplain(state: Any, function: str) -> None:
    torch = sys.modules.get("torch")  # without it there is no tensor either
    plain = (bool, int, float, str, bytes, type(None), *([torch.Tensor] if torch else []))
    if isinstance(state, Mapping | list | tuple):
        for item in state.items() if isinstance(state, Mapping) else state:
            _refuse_unplain(item, function)
    elif not isinstance(state, plain):
        raise CheckpointError(
            f"the state of `{function}` holds a {type(state).__name__}: it may hold tensors, "
            "numbers, strings, and lists or dicts of them."
        )
