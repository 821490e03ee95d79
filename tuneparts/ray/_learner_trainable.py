"""Any method, net or objective as an ordinary Ray Tune trainable."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import ray
import torch
from ray import tune

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.data.task import NO_DATA, Task
from tuneparts.executors.place import bundle
from tuneparts.executors.ray.tasks import RayTasks
from tuneparts.methods import catalog
from tuneparts.methods.objective import Objective
from tuneparts.nets import check_own_nets
from tuneparts.search.arm import Resources
from tuneparts.search.frames import flat
from tuneparts.training import checkpoint
from tuneparts.training.config import Method
from tuneparts.training.learner import Context
from tuneparts.training.process import keep_freed_memory

_STATE = "state.pt"
_OF_OBJECTIVES = ("steps", "interval", "seed")
"""What a param space may name besides params of an objective."""


def trainable(
    method: str | type[Method] | Method | Callable[..., Any],
    *,
    data: Data | Task | None = None,
    seed: int = 0,
    resources: Resources | None = None,
    **fields: Any,
) -> type[tune.Trainable]:
    """Make a `tune.Trainable` class for a `tune.Tuner` of one's own.

    The keys of the Tuner's `param_space` are fields of the method's config, by dotted path
    (`"optimiser.lr"`) or nested, and `seed`. Each iteration is one interval of the method, and
    reports its metrics under their own names, such as `val/accuracy`.

    Checkpoints hold the whole state of a trial, so population-based training, pausing schedulers
    and `Tuner.restore` continue bit for bit. `tune.CheckpointConfig(checkpoint_frequency=1)` makes
    Tune take one after each iteration.

    Args:
        method: A name that `tuneparts methods` lists, an import path, a config class or a config;
            or an objective (see `tuneparts.methods.objective`), and then the keys of the param
            space are what it is called with.
        data: What is learnt from; put into Ray's object store once.
        seed: Of a trial whose config has no `seed`.
        resources: What a trial reserves; one CPU when not given. `tune.with_resources` works too.
        fields: Fields of the config that are the same in every trial, such as `steps=400`.

    Raises:
        ConfigError: A field is wrong, or the method needs data.

    Example:
        >>> import tuneparts.ray
        >>> digits = Data(name="digits", num_train=200, num_val=100)
        >>> standard = tuneparts.ray.trainable("standard", data=digits, steps=40)
        >>> standard.__name__, issubclass(standard, tune.Trainable)
        ('standard', True)

        `tune.Tuner(standard, param_space={"optimiser.lr": tune.loguniform(1e-4, 1e-1)})` takes it.
    """
    base = _base(method, fields)
    if base.needs_data and data is None:
        raise ConfigError(
            f"{type(base).__name__} learns from data, but got none. Pass `data=Data(...)`."
        )
    task = NO_DATA if data is None else data if isinstance(data, Task) else data.load()
    base.check()
    check_own_nets(base, task.in_shape, task.num_outputs)
    # A class of its own: Tune finds trainables by name, and `with_parameters` data by class.
    facts = {"base": base, "seed": seed, "resources": resources or Resources()}
    named = base.function if isinstance(base, Objective) else str(getattr(base, "method", ""))
    name = re.sub(r"\W", "_", named.rpartition(":")[2]) or type(method).__name__
    made = type(name, (LearnerTrainable,), facts)
    return tune.with_parameters(made, task=task)  # type: ignore[no-any-return]


class LearnerTrainable(tune.Trainable):  # type: ignore[misc]
    """One learner, advanced one interval at a time. Subclasses are made by `trainable`."""

    base: ClassVar[Method]
    seed: ClassVar[int]
    resources: ClassVar[Resources]

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        # Tune asks in the driver before a trial is started, so a wrong key is refused there.
        made, _ = configured(cls.base, config, cls.seed)
        return tune.PlacementGroupFactory([bundle(cls.resources), *made.task_bundles()])

    def setup(self, config: dict[str, Any], *, task: Task) -> None:
        self._task = task
        keep_freed_memory()
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start over with another config: Tune reuses actors, and PBT perturbs configs."""
        config, seed = configured(self.base, new_config, self.seed)
        bundles = self.trial_resources.bundles if self.trial_resources else [{}]
        torch.set_num_threads(max(1, int(bundles[0].get("CPU", 1))))
        # Tune's names of trials end in their number, after what differs from run to run.
        stream = (type(self).__name__, str(self.trial_id).rpartition("_")[2])
        # A worker may see GPUs that Ray gave to others.
        has_gpu = bool(ray.get_gpu_ids()) and torch.cuda.is_available()
        device = torch.device("cuda" if has_gpu else "cpu")
        self._context = Context(
            task=self._task, seed=seed, device=device, tasks=RayTasks(), stream=stream
        )
        with self._context.seeded_globals():
            self._learner = config.build(self._context)
        self._seconds = 0.0
        self._last: dict[str, float] = {}
        return True

    def step(self) -> dict[str, Any]:
        if not self._learner.finished:  # a trial may be restored from its last checkpoint
            start = time.perf_counter()
            with self._context.seeded_globals(self._learner.steps):
                self._last = dict(self._learner.advance())
            self._seconds += time.perf_counter() - start
        return {**self._last, "cost/seconds": self._seconds, "done": self._learner.finished}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        learner, rest = self._learner.state_dict(), {"seconds": self._seconds, "last": self._last}
        checkpoint.save(Path(checkpoint_dir) / _STATE, {"learner": learner, **rest})

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        state = checkpoint.load(Path(checkpoint_dir) / _STATE)
        self._learner.load_state_dict(state["learner"])
        self._seconds, self._last = state["seconds"], state["last"]


def configured(base: Method, values: Mapping[str, Any], seed: int) -> tuple[Method, int]:
    """The config and the seed of a trial from what Tune sampled."""
    changes = {}
    for path, value in flat(values).items():
        is_param = isinstance(base, Objective) and path not in _OF_OBJECTIVES
        name = f"params.{path.removeprefix('params.')}" if is_param else path
        is_number = hasattr(value, "item") and not hasattr(value, "__len__")  # of numpy
        changes[name] = value.item() if is_number else value
    seed = changes.pop("seed", seed)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigError(f"a seed is a whole number, but the param space gave {seed!r:.100}.")
    return base.replaced(changes), seed


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
