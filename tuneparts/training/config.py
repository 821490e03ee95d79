"""The configs of training, without torch: runtime, optimiser, and what every method's config has.

A method is a frozen config that can `build(context)` a `Learner`. What it may define besides is
listed once, in the docstring of `Method`.
"""

import inspect
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

import tuneparts
from tuneparts.core import import_path, schema
from tuneparts.core.config import Config, usually
from tuneparts.core.errors import ConfigError
from tuneparts.hypers import Augmentation, HyperGradient, Hypers
from tuneparts.nets import Mlp, Net
from tuneparts.training.learner import Context, Learner

if TYPE_CHECKING:
    import torch
    from torch import nn

    from tuneparts import Algorithm, Arm, Dimension
    from tuneparts.data.task import Task


class Runtime(Config):
    """How the steps of a learner are computed: precision, memory layout, kernels.

    None of it changes what a method is, but all of it changes numbers in their last digits or more,
    so it is part of a search and of its digest.
    """

    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """`float32` has no shortcuts, on GPUs neither. `tf32` lets NVIDIA GPUs round the factors of
    products to 10 bits in training steps; elsewhere it is float32. `bf16` computes the net in
    bfloat16 by autocast in updates. Weights, optimisers, augmentation, losses, hyperparameter
    steps, evidence, clustering and scores stay in float32 or better."""
    compile: bool = False
    """Compile the net by `torch.compile`: a minute at the start, fewer and larger kernels then."""
    channels_last: bool | None = None
    """Give images to the net with channels as the innermost dimension; None chooses."""
    deterministic: bool = False
    """Allow only kernels that give the same bits each time. Here a run repeats itself on a CPU in
    any case. On a GPU this promises the same bits for the same versions and the same model of GPU;
    where torch has no such kernel, the trial fails and names it."""

    @contextmanager
    def numerics(self, device: "torch.device", *, is_training: bool) -> Iterator[None]:
        """Set what torch keeps for the process; only a training step rounds as `precision` says."""
        import torch

        cuda = device.type == "cuda"
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
        was_deterministic = torch.are_deterministic_algorithms_enabled()
        warned_only = torch.is_deterministic_algorithms_warn_only_enabled()
        try:
            if cuda:
                matmul.allow_tf32 = cudnn.allow_tf32 = is_training and self.precision == "tf32"
            if self.deterministic:
                # Read by cuBLAS when it first starts in a process.
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                cudnn.benchmark = False
                torch.use_deterministic_algorithms(True)
            yield
        finally:
            if cuda:
                matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before
            if self.deterministic:
                torch.use_deterministic_algorithms(was_deterministic, warn_only=warned_only)


class Optimiser(Config):
    """What `Adam` and `Sgd` share: the rate, its schedule over the budget, and weight decay."""

    kind: str
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate at its highest."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Coupled L2: added to the gradient."""
    schedule: Literal["constant", "cosine", "steps"] = "constant"
    """How the learning rate falls over the budget."""
    final_lr: float = Field(default=0.0, ge=0)
    """Where the cosine ends."""
    annealed_over: float = Field(default=1.0, gt=0, le=1)
    """Fraction of the budget at which the cosine has ended; from there on the rate stays."""
    milestones: tuple[float, ...] = ()
    """Fractions of the budget at which the schedule `steps` multiplies the rate."""
    step_factor: float = Field(default=0.2, gt=0)
    """By what it multiplies."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of the budget over which the rate rises linearly from zero."""
    scalar_lr_factor: float = Field(default=0.1, gt=0)
    """Rate of FixUp's scalar biases and scales, relative to the others (Zhang et al. 2019)."""

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.warmup >= self.annealed_over:
            raise ValueError(
                f"`annealed_over` = {self.annealed_over:g}: must exceed `warmup` = {self.warmup:g}."
            )
        return self

    def lr_at(self, progress: float) -> float:
        """The learning rate after this fraction of the budget."""
        if progress < self.warmup:
            return self.lr * progress / self.warmup
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "steps":
            return self.lr * self.step_factor ** sum(progress >= at for at in self.milestones)
        rest = min(1.0, (progress - self.warmup) / (self.annealed_over - self.warmup))
        return self.final_lr + (self.lr - self.final_lr) * (1 + math.cos(math.pi * rest)) / 2

    def build(self, net: "nn.Module", *, decays_norms: bool = True) -> "torch.optim.Optimizer":
        """A torch optimiser over the net; call `set_lr` before each step."""
        import torch

        from tuneparts.nets.layers import NORMS, SCALARS, names_of
        from tuneparts.training.step import adam

        named, scalars = dict(net.named_parameters()), set(names_of(net, SCALARS))
        norms = set() if decays_norms else set(names_of(net, NORMS))
        rules: list[tuple[set[str], dict[str, Any]]] = [
            (named.keys() - scalars - norms, {"lr_factor": 1.0}),
            (scalars, {"lr_factor": self.scalar_lr_factor}),
            (norms, {"lr_factor": 1.0, "weight_decay": 0.0}),
        ]
        groups = [
            {"params": [p for name, p in named.items() if name in names], **rule}
            for names, rule in rules
            if names & named.keys()
        ]
        if isinstance(self, Sgd):
            # Not fused: that fails where a parameter has its first gradient later than others.
            how = self.model_dump(include={"lr", "momentum", "nesterov", "weight_decay"})
            return torch.optim.SGD(groups, **how)
        return adam(groups, lr=self.lr, weight_decay=self.weight_decay)


class Adam(Optimiser):
    """Adam (Kingma and Ba 2015)."""

    kind: Literal["adam"] = "adam"


class Sgd(Optimiser):
    """Stochastic gradient descent with momentum."""

    kind: Literal["sgd"] = "sgd"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: bool = False
    """Use Nesterov's form of momentum."""


AnyOptimiser = Annotated[Adam | Sgd, Field(discriminator="kind"), usually("adam")]
"""The type of a field that holds an optimiser; a mapping without a `kind` is Adam."""


class Finetune(Config):
    """How long the stage is, and how it trains."""

    fraction: float = Field(default=0.25, gt=0, lt=1)
    """Share of the run's steps, at its end."""
    optimiser: AnyOptimiser | None = None
    """Its schedule runs over the stage; None for that of the run at half its rate,
    which falls along a cosine."""

    def start(self, steps: int) -> int:
        """The step at which the stage begins, in a run of so many; neither first nor last."""
        return max(1, min(steps - 1, steps - round(self.fraction * steps)))

    def progress(self, spent: int, steps: int) -> float:
        """Fraction of the present stage that is spent: what its schedule is a function of."""
        start = self.start(steps)
        return spent / start if spent < start else (spent - start) / max(1, steps - start)


class Method(Config):
    """What every method's config has: a budget in steps and a reporting interval.

    A method owes `build`, and may say seven things more, each with a default: `metrics` (or, where
    they depend on its fields, `declared_metrics`), `needs_data`, `classes_only`, `takes_runtime`,
    `check`, `measurable` and `can_be_packed`. A `SupervisedMethod` also says what it does with
    hyperparameters: `hyper_gradient` and `penalises_weights`.

    The field `method` names the method, so that a config that was written as JSON finds its class
    again. A class outside of this package that builds a learner and has no such field gets one: its
    own import path. `examples/own_method.py` shows such a class.
    """

    steps: int = Field(default=400, gt=0)
    """Budget of forward-backwards over one batch."""
    interval: int = Field(default=100, gt=0)
    """Steps between two reports."""
    runtime: Runtime | None = None
    """Precision and layout of the steps; None for that of the search."""
    hypers_from: str | None = None
    """In a search: train at the hyperparameters that the selected trial of this earlier arm ended
    with, seed by seed."""
    config_from: str | None = None
    """In a search: train at what the selected trial of this earlier arm drew from its space."""
    learner: ClassVar[str] = ""
    """Import path of the class that `build` calls with config and context, unless overridden."""
    metrics: ClassVar[tuple[schema.Metric, ...]] = ()
    """What its learner reports besides the built-in metrics."""
    figures: ClassVar[tuple[str, ...]] = ()
    """Figures of reports of its arms besides those that the search asks for."""
    takes_runtime: ClassVar[bool | Literal["compiled"]] = False
    """Whether its learner trains by `loss_on`, or calls nets by `forward.run`, and so takes part in
    a `runtime`; `compiled` if it trains one net as it is, which `runtime.compile` can compile."""
    needs_data: ClassVar[bool] = True
    """Whether its learner reads the data of the search."""
    classes_only: ClassVar[str] = ""
    """Why its learner can learn classes and no other target; empty where it can."""

    @model_validator(mode="after")
    def _check_runtime(self) -> Self:
        # Driver, workers and readers of a run all parse the config, so all know the metrics.
        schema.declare(*self.declared_metrics())
        runtime, name = self.runtime, type(self).__name__
        if runtime is not None and not self.takes_runtime:
            raise ValueError(f"`runtime`: {name} trains no net of ours; leave it out")
        if runtime is not None and runtime.compile and self.takes_runtime != "compiled":
            raise ValueError(
                f"`runtime.compile`: {name} changes the weights of a net at each step; leave it out"
            )
        return self

    def searched_by(
        self,
        algorithm: "Algorithm",
        space: "Mapping[str, Dimension] | None" = None,
        **dimensions: "Dimension",
    ) -> "Arm":
        """An arm of a search: an algorithm chooses its trials from a space.

        The space names fields by path, or by the last part of it where that is unique.

        Example:
            >>> import tuneparts as tp
            >>> lr = tp.Uniform(1e-4, 1e-1, log=True)
            >>> tp.Standard().searched_by(tp.RandomSearch(20), lr=lr).algorithm.num_trials
            20
        """
        return tuneparts.Arm(
            config=self, algorithm=algorithm, space={**(space or {}), **dimensions}
        )

    def declared_metrics(self) -> tuple[schema.Metric, ...]:
        """What a learner of this very config reports besides the built-in metrics."""
        return self.metrics

    def check(self, task: "Task | None" = None, *, copies_state: bool = False) -> None:
        """Refuse by a `ConfigError` what cannot run, in the driver before anything is started.

        It is called without a task, and again with it where the method needs data. `copies_state`
        says that trials load states of others, as in population-based training.
        """
        del copies_state
        if task is not None:
            from tuneparts.training import check

            if self.classes_only:
                check.refuse_target(self, task, self.classes_only)
            check._check_data(self, task)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = inspect.get_annotations(cls)
        is_ours = cls.__module__.partition(".")[0] == "tuneparts"
        builds = cls.learner or cls.build is not Method.build
        if not is_ours and "method" not in own and builds:
            path = import_path.name_of(cls)
            cls.__annotations__ = {**own, "method": Literal[path]}
            cls.method = path  # type: ignore[attr-defined]

    def task_bundles(self) -> list[dict[str, float]]:
        """Resources that a trial reserves for tasks besides its own: name to amount, each."""
        return []

    def build(self, context: Context) -> Learner:
        """A learner at its start."""
        learner: Learner = import_path.find(self.learner)(self, context)
        return learner

    def measurable(self) -> tuple[Self, int]:
        """A config whose first steps cost what others do, and steps made once for all trials."""
        return self, 0

    @property
    def can_be_packed(self) -> bool:
        """Whether its learners can be trained together, see `Arm.packed`."""
        return False


class _OverBatches(Method):
    """Batches of the training data, and an optimiser."""

    optimiser: AnyOptimiser = Adam()
    batch_size: int = Field(default=50, gt=0)
    """Examples in the batch of one step."""
    train_on: Literal["train", "all"] = "train"
    """`train` keeps the validation split for selection; `all` trains on both."""
    takes_runtime: ClassVar[bool | Literal["compiled"]] = True


class SupervisedMethod(_OverBatches):
    """A net, its hyperparameters, an optimiser and batches."""

    net: Net = Mlp()
    """Which net, by name or as a config of its own."""
    hypers: Hypers = Hypers()
    """Augmentation and the like: learnt by some methods, given to others."""
    penalises_weights: ClassVar[bool] = False
    """Whether its steps take the penalty of hyperparameters that act on weights."""

    @property
    def hyper_gradient(self) -> HyperGradient:
        """By which gradient its learner learns hyperparameters."""
        return "none"

    @model_validator(mode="after")
    def _check_hypers(self) -> Self:
        for name in self.hypers.acting_on("weights"):
            if not self.penalises_weights:
                raise ConfigError(
                    f"`{name}` penalises all weights together, but this method trains them in "
                    "parts. Use `optimiser.weight_decay`, `standard` or `validation`."
                )
        if self.hyper_gradient == "fixed weights":
            self.hypers.check_likelihood()
        return self

    def declared_metrics(self) -> tuple[schema.Metric, ...]:
        return (*super().declared_metrics(), *self.hypers.metrics())

    def check(self, task: "Task | None" = None, *, copies_state: bool = False) -> None:
        super().check(task, copies_state=copies_state)
        if task is not None:
            from tuneparts.training import check

            check._check_hypers(self.hypers, task, learnable=self.hyper_gradient != "none")


class EnsembleMethod(_OverBatches):
    """An optimiser, batches, and what is measured at the end."""

    augmentation: Augmentation = Augmentation()
    """Crop, flip and cutout of training images, the same for all members."""
    interpolation_points: int = Field(default=0, ge=0)
    """Points on the line between the first two members to score at the end; 0 for none."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of every training label that all classes have alike (Szegedy et al. 2016)."""
    decays_norms: bool = True
    """Whether the optimiser's weight decay acts on the parameters of norms too."""

    @model_validator(mode="after")
    def _check_has_two_ends(self) -> Self:
        if self.interpolation_points == 1:
            raise ValueError("`interpolation_points` = 1: a line has two ends")
        return self

    def check(self, task: "Task | None" = None, *, copies_state: bool = False) -> None:
        super().check(task, copies_state=copies_state)
        if task is not None:
            from tuneparts.training import check

            if self.label_smoothing:
                check.refuse_target(self, task, "its `label_smoothing` is over classes")
            if self.interpolation_points:
                check.refuse_target(self, task, "its `interpolation_points` are scored by accuracy")
