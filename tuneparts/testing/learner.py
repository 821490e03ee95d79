"""The contract of a learner: what every method keeps, ours or not."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from tuneparts.core import schema
from tuneparts.core.config import parse
from tuneparts.data.config import Data
from tuneparts.data.task import Task
from tuneparts.methods import catalog
from tuneparts.training import checkpoint
from tuneparts.training.config import Method
from tuneparts.training.learner import Context, Learner

_MOST_REPORTS = 1000
"""A learner that has made so many does not finish."""


class LearnerContract:
    """The laws of a learner, seen on a few dozen steps over toy images.

    Inherit it in a class that pytest collects, and name the method's config. Most laws look at the
    same short run, which is trained once.

    Example:
        >>> from tuneparts.methods.baselines.config import Standard
        >>> class TestMine(LearnerContract):
        ...     config = Standard(net="mlp")
        >>> TestMine().test_stop_serialise_resume_is_the_uninterrupted_run()
    """

    config: ClassVar[Method]
    data: ClassVar[Data] = Data(name="stripes", num_train=96, num_val=32, num_test=32)
    """What is learnt from; easy, so that a few steps show that something is learnt."""
    short: ClassVar[Mapping[str, Any]] = {"steps": 12, "interval": 4, "batch_size": 16}
    """Set in the config for most laws, where it has such a field: at least three intervals."""
    longer: ClassVar[Mapping[str, Any]] = {"steps": 120, "interval": 20, "batch_size": 32}
    """Set in the config to see whether the loss falls, likewise."""
    scores: ClassVar[tuple[str, ...]] = ("test/accuracy", "test/nll")
    """What the last report has, and no report before it."""
    recomputed: ClassVar[frozenset[str]] = frozenset()
    """Attributes of any object in the learner that it makes anew when needed, such as caches."""

    def start(self, changes: Mapping[str, Any] | None = None, *, seed: int = 0) -> Learner:
        config = self.changed(self.short if changes is None else changes)
        return config.build(Context(task=self.task, seed=seed, device=torch.device("cpu")))

    def changed(self, changes: Mapping[str, Any]) -> Method:
        fields = type(self.config).model_fields
        return self.config.replaced({k: v for k, v in changes.items() if k in fields})

    @cached_property
    def task(self) -> Task:
        return self.data.load()

    def uninterrupted(self) -> "Run":
        """The short run at seed 0, from start to end; trained once in a process."""
        key = self.changed(self.short).model_dump_json() + self.data.model_dump_json()
        if key not in _runs:
            before = _global_generators()
            learner = self.start()
            rows = history(learner)
            state = checkpoint.to_bytes(learner.state_dict())
            _runs[key] = Run(rows, learner.steps, state, before, _global_generators())
        return _runs[key]

    def test_a_worker_finds_the_config_again(self) -> None:
        config = self.changed(self.short)
        catalog.check(config)
        tree = json.loads(config.model_dump_json())
        assert parse(catalog.config_class(tree["method"]), tree) == config

    def test_only_known_metrics_are_reported_and_test_scores_once(self) -> None:
        rows = self.uninterrupted().rows
        for row in rows:
            for name, value in row.items():
                assert schema.lookup(name)
                assert isinstance(value, float), name
                assert np.isfinite(value), name
        scored = [any(name.startswith("test/") for name in row) for row in rows]
        assert scored == [False] * (len(rows) - 1) + [True]
        assert [name for name in self.scores if name not in rows[-1]] == []

    def test_steps_are_counted_and_the_budget_is_kept(self) -> None:
        run = self.uninterrupted()
        counted = [row["cost/steps"] for row in run.rows]
        assert counted == sorted(set(counted))
        assert counted[-1] == run.steps == self.changed(self.short).steps

    def test_the_loss_falls_on_toy_data(self) -> None:
        rows = history(self.start(self.longer))
        losses = [row["train/loss"] for row in rows]
        assert losses[-1] < 0.9 * losses[0]
        if "test/accuracy" in self.scores:
            assert rows[-1]["test/accuracy"] > 1.2 / self.task.num_classes

    def test_same_seed_same_numbers_another_seed_other_numbers(self) -> None:
        again, other = (history(self.start(seed=seed)) for seed in (0, 4))
        assert again == self.uninterrupted().rows
        assert other != again

    def test_stop_serialise_resume_is_the_uninterrupted_run(self) -> None:
        whole = self.uninterrupted()
        for num_intervals in (1, 2):
            stopped = self._advanced(num_intervals)
            resumed = self._loaded(stopped)
            assert resumed.steps == stopped.steps
            assert history(resumed) == whole.rows[num_intervals:]
            assert checkpoint.to_bytes(resumed.state_dict()) == whole.state

    def test_no_part_of_a_learner_is_forgotten_by_its_state(self) -> None:
        """Whatever draws, learns or counts, however deep inside, is as it was after loading."""
        for num_intervals in (1, 3):
            trained = self._advanced(num_intervals)
            expected, found = (
                dict(self._parts("learner", one, set())) for one in (trained, self._loaded(trained))
            )
            assert expected.keys() == found.keys()
            different = [path for path, value in expected.items() if not _same(value, found[path])]
            assert different == []

    def test_two_learners_from_one_state_share_nothing(self) -> None:
        learner = self._advanced(1)
        twin = self._loaded(learner)
        before = checkpoint.to_bytes(twin.state_dict())
        learner.advance()
        assert checkpoint.to_bytes(twin.state_dict()) == before

    def test_global_generators_are_untouched(self) -> None:
        run = self.uninterrupted()
        assert run.generators_after == run.generators_before

    def _advanced(self, num_intervals: int) -> Learner:
        learner = self.start()
        for _ in range(num_intervals):
            learner.advance()
        return learner

    def _loaded(self, learner: Learner) -> Learner:
        twin = self.start()
        twin.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(learner.state_dict())))
        return twin

    def _parts(self, path: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
        """By path: generators, optimisers, tensors and numbers in objects of ours or the method."""
        items: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, torch.optim.Optimizer):
            value = value.state_dict()["state"]
        if isinstance(value, torch.Generator):
            yield path, value.get_state()
        elif isinstance(value, np.random.Generator):
            yield path, value.bit_generator.state
        elif isinstance(value, bool | int | float | str | torch.Tensor | np.ndarray | None):
            yield path, value
        elif isinstance(value, torch.nn.Module):
            items = [*value.named_parameters(), *value.named_buffers()]
        elif isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list | tuple):
            items = enumerate(value)
        elif hasattr(value, "__dict__") and (id(value) not in seen or is_dataclass(value)):
            own = type(self.config).__module__.partition(".")[0]
            if type(value).__module__.partition(".")[0] in {"tuneparts", own}:
                seen.add(id(value))
                items = [pair for pair in vars(value).items() if pair[0] not in self.recomputed]
        for name, item in items:
            yield from self._parts(f"{path}.{name}", item, seen)


@dataclass(frozen=True)
class Run:
    """All that the laws ask of one uninterrupted run."""

    rows: list[dict[str, float]]
    steps: int
    state: bytes
    generators_before: Any
    generators_after: Any


_runs: dict[str, Run] = {}


def history(learner: Learner) -> list[dict[str, float]]:
    """All reports that a learner has still to make."""
    rows = []
    while not learner.finished:
        rows.append(dict(learner.advance()))
        assert len(rows) < _MOST_REPORTS, "`finished` is never reached"
    return rows


def _global_generators() -> tuple[Any, ...]:
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and bool(torch.equal(a.cpu(), b.cpu()))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)
