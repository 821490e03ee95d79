"""Methods and objectives as an ordinary Ray Tune trainable."""

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import ray
import torch
from ray import tune

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.data.config import Data
from tuneparts.data.task import NO_DATA, Task
from tuneparts.executors.place import bundle
from tuneparts.executors.ray.tasks import RayTasks
from tuneparts.methods import catalog
from tuneparts.methods.objective import Objective
from tuneparts.nets import check_own_nets
from tuneparts.search.algorithms.base import Fixed, GridSearch
from tuneparts.search.arm import Arm, Resources
from tuneparts.search.frames import flat
from tuneparts.search.space import Choice
from tuneparts.training import checkpoint
from tuneparts.training.config import Method
from tuneparts.training.learner import Context, available_device
from tuneparts.training.process import keep_freed_memory

_STATE = "state.pt"
FACTS = "tuneparts"
"""Key of a trial's first result with what `tuneparts.ray.results` needs besides, as JSON text."""
FINISHED = "finished"
"""Key of whether a trial has spent its budget; Tune sets `done` also where it stops one."""


def trainable(
    method: str | type[Method] | Method | Callable[..., Any] | Mapping[str, Any],
    *,
    data: Data | Task | None = None,
    seed: int = 0,
    resources: Resources | None = None,
    **fields: Any,
) -> type[tune.Trainable]:
    """Make a `tune.Trainable` class for your own `tune.Tuner`.

    The keys of the Tuner's `param_space` are `seed` and fields of the method's config, by dotted
    path (`"optimiser.lr"`, or `"lr"` if no other field is called so) or nested. With several
    methods, `{"standard": Standard(), "partitioned": Partitioned()}`, the key `method` has their
    names. Each iteration is one interval of the method, a tenth of its steps unless given, and
    reports its metrics under their own names, such as `val/accuracy`. `tuneparts.ray.results`
    reads what the Tuner has found.

    Checkpoints hold the whole state of a trial, so population-based training, pausing schedulers
    and `Tuner.restore` continue bit for bit. `tune.CheckpointConfig(checkpoint_frequency=1)` makes
    Tune take one after each iteration.

    Args:
        method: A name that `tuneparts methods` lists, an import path, a config class or a config;
            or an objective (see `tuneparts.methods.objective`), and then the keys of the param
            space are what it is called with; or several of them by name.
        data: What is learnt from; put into Ray's object store once, the same for all seeds.
        seed: Of a trial whose config has no `seed`.
        resources: What a trial reserves; one CPU when not given. `tune.with_resources` works too.
        fields: Fields of the configs that are the same in every trial, such as `steps=400`.

    Raises:
        ConfigError: A field is wrong, or the method needs data.

    Example:
        >>> import tuneparts.ray
        >>> digits = Data(name="digits", num_train=200, num_val=100)
        >>> standard = tuneparts.ray.trainable("standard", data=digits, steps=40)
        >>> standard.__name__, issubclass(standard, tune.Trainable)
        ('standard', True)

        `tune.Tuner(standard, param_space={"lr": tune.loguniform(1e-4, 1e-1)})` takes it.
    """
    several = method if isinstance(method, Mapping) else {}
    bases = {name: _base(one, fields) for name, one in several.items()}
    if not several:
        base = _base(method, fields)
        named = base.function if isinstance(base, Objective) else str(getattr(base, "method", ""))
        name = re.sub(r"\W", "_", named.rpartition(":")[2]) or type(method).__name__
        bases = {name: base}
    arms = {
        name: Arm(name=re.sub(r"^(?![a-z])", "m_", name.lower()), config=base).completed({})
        for name, base in bases.items()
    }
    task = NO_DATA if data is None else data if isinstance(data, Task) else data.load()
    for arm in arms.values():
        if arm.config.needs_data and data is None:
            raise ConfigError(
                f"{type(arm.config).__name__} learns from data, but got none. Pass "
                "`data=Data(...)`."
            )
        arm.config.check()
        check_own_nets(arm.config, task.in_shape, task.num_outputs)
    # A class of its own: Tune finds trainables by name, and `with_parameters` data by class.
    own = {"arms": arms, "seed": seed, "resources": resources or Resources()}
    facts = {name: arm.model_dump(mode="json") for name, arm in arms.items()}
    known = data.model_dump(mode="json") if isinstance(data, Data) else None
    own["facts"] = {"arms": facts, "seed": seed, "data": known}
    made = type("_".join(arms), (LearnerTrainable,), own)
    return tune.with_parameters(made, task=task)  # type: ignore[no-any-return]


class LearnerTrainable(tune.Trainable):  # type: ignore[misc]
    """One learner, advanced one interval at a time. Subclasses are made by `trainable`."""

    arms: ClassVar[Mapping[str, Arm]]
    """What the key `method` may be -> the method."""
    seed: ClassVar[int]
    resources: ClassVar[Resources]
    facts: ClassVar[dict[str, Any]]

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        # Tune asks in the driver before a trial is started, so a wrong key is refused there.
        _, made, _, _ = configured(cls.arms, config, cls.seed)
        return tune.PlacementGroupFactory([bundle(cls.resources), *made.task_bundles()])

    def setup(self, config: dict[str, Any], *, task: Task) -> None:
        self._task = task
        keep_freed_memory()
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start over with another config: Tune reuses actors, and PBT perturbs configs."""
        _, config, seed, _ = configured(self.arms, new_config, self.seed)
        bundles = self.trial_resources.bundles if self.trial_resources else [{}]
        torch.set_num_threads(max(1, int(bundles[0].get("CPU", 1))))
        # Tune's names of trials end in their number, after what differs from run to run.
        stream = (type(self).__name__, str(self.trial_id).rpartition("_")[2])
        device = available_device(len(ray.get_gpu_ids()))
        self._context = Context(
            task=self._task, seed=seed, device=device, tasks=RayTasks(), stream=stream
        )
        with self._context.seeded_globals():
            self._learner = config.build(self._context)
        self._seconds = 0.0
        self._last: dict[str, float] = {}
        return True

    def step(self) -> dict[str, Any]:
        # As text, so that loggers of numbers leave it out.
        facts = {} if self._last else {FACTS: json.dumps(self.facts)}
        if not self._learner.finished:  # a trial may be restored from its last checkpoint
            start = time.perf_counter()
            with self._context.seeded_globals(self._learner.steps):
                self._last = dict(self._learner.advance())
            self._seconds += time.perf_counter() - start
        is_over = self._learner.finished
        ended = {"done": is_over, FINISHED: is_over}
        return {**self._last, "cost/seconds": self._seconds, **ended, **facts}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        learner, rest = self._learner.state_dict(), {"seconds": self._seconds, "last": self._last}
        checkpoint.save(Path(checkpoint_dir) / _STATE, {"learner": learner, **rest})

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        state = checkpoint.load(Path(checkpoint_dir) / _STATE)
        self._learner.load_state_dict(state["learner"])
        self._seconds, self._last = state["seconds"], state["last"]


def configured(
    arms: Mapping[str, Arm], values: Mapping[str, Any], seed: int
) -> tuple[str, Method, int, dict[str, Any]]:
    """The arm, config and seed of a trial from what Tune sampled, and the rest by whole paths."""
    changes = {}
    for path, value in flat(values).items():
        is_number = hasattr(value, "item") and not hasattr(value, "__len__")  # of numpy
        changes[path] = value.item() if is_number else value
    seed = changes.pop("seed", seed)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigError(f"seed = {seed!r:.100}: must be a whole number.")
    name = changes.pop("method", next(iter(arms)) if len(arms) == 1 else None)
    if name not in arms:
        raise UnknownNameError("method", str(name), arms)
    # A space of one value each: it finds whole paths, and refuses what does not fit.
    space = {path: Choice([value]) for path, value in changes.items()}
    algorithm = GridSearch() if space else Fixed()
    arm = arms[name].model_copy(update={"space": space, "algorithm": algorithm}).completed({})
    found = dict(zip(arm.space, changes.values(), strict=True))
    return arm.name, arm.config_at(found), seed, found


def _base(method: Any, fields: Mapping[str, Any]) -> Method:
    if isinstance(method, Method):
        return method.replaced(fields)
    if isinstance(method, str):
        return parse(catalog.config_class(method), fields)
    if isinstance(method, type) and issubclass(method, Method):
        return parse(method, fields)
    if callable(method):
        return parse(Objective, {"function": method, **fields})
    raise ConfigError(
        "a trainable is made of a method's name, a config class, a config or an objective, but got "
        f"{method!r:.100}."
    )
