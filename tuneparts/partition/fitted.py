"""Partitioned training of one's own net on one's own arrays, without a search around it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.data.given import Arrays, given_examples, given_inputs, given_task
from tuneparts.data.target import from_anything as target_from
from tuneparts.data.task import Task
from tuneparts.errors import ConfigError
from tuneparts.models.given import GivenNet, given_config
from tuneparts.models.reweighted import reweighted, under_all_names
from tuneparts.models.survey import PROBE, check_logits, copied, is_lent
from tuneparts.partition.assign import roles_of
from tuneparts.partition.learner import PartitionedConfig, PartitionedLearner
from tuneparts.training.learner import Context
from tuneparts.training.progress import Report, run_through


@dataclass(frozen=True)
class Fitted:
    """A trained net with what was learnt besides its weights."""

    net: nn.Module
    """The net that was given, trained; an ordinary net again. Dropout layers that it had act in
    `predict` and in training here, and pass their inputs on elsewhere."""
    hypers: Mapping[str, float]
    """Learnt values by name: `rotation`, `dropout.0`, ..."""
    lml: float
    """L_ML in nats at the end; NaN with a single chunk."""
    history: list[Mapping[str, float]] = field(repr=False)
    """What each interval reported."""
    learner: PartitionedLearner = field(repr=False)

    @torch.no_grad()
    def predict(self, inputs: Arrays) -> Tensor:
        """Outputs (B, K) for inputs like those of training, averaged over augmentation samples."""
        learner = self.learner
        self.net.eval()
        x = torch.as_tensor(given_inputs(inputs), device=learner.context.device)
        return learner.predict(x, learner.generator("predict"))


def fit(
    net: nn.Module,
    inputs: Arrays,
    labels: Arrays,
    *,
    target: Any = "classes",
    seed: int = 0,
    device: torch.device | str | None = None,
    report: Report | None = None,
    **fields: Any,
) -> Fitted:
    """Train a net and learn its hypers in one run, on all the data.

    Args:
        net: any module of linear, convolutional, norm and scalar layers, from inputs (B, ...) to
            logits (B, K); trained in place.
        inputs: float images (N, C, H, W) or vectors (N, D), scaled as the net wants them; whole
            numbers, such as tokens, stay whole.
        labels: whole numbers (N,), 0 to K - 1; for other targets what these predict.
        target: `classes`, `binary`, `values`, a loss function, or a `Target`.
        seed: of the chunks, the assignment, the batches and the augmentation.
        device: where to train; the net's own if None.
        report: called with the metrics of each interval; a terminal shows a bar if None.
        fields: those of `PartitionedConfig`, such as `passes`, `hypers`, `proportions`.
    """
    aim = target_from(target)
    task = given_task(given_examples(inputs, labels, aim), target=aim)
    config = given_config(
        PartitionedConfig, {"train_on": "train", **fields}, net=GivenNet(lambda: net)
    )
    if config.defaults == "seed":
        raise ConfigError(
            "a net that was built elsewhere cannot be drawn again from the seed, but `defaults` is "
            "`seed`. Use `initial`."
        )
    _check(net, task, num_held=config.num_extractor_layers)
    at = torch.device(device or next(iter(net.parameters())).device)
    context = Context(task=task, seed=seed, device=at)
    learner = PartitionedLearner(config, context)
    history = run_through(learner, what="partitioned", passes=config.passes, report=report)
    values = {name.removeprefix("hyper/"): v for name, v in learner.hypers.values().items()}
    lml = history[-1].get("lml/total", float("nan"))
    return Fitted(learner.parts.merged(), values, lml, history, learner)


def _check(net: nn.Module, task: Task, *, num_held: int) -> None:
    """Refuse a net that cannot be partitioned, before anything of it changes."""
    copy = copied(net).cpu()
    x = torch.as_tensor(task.train.inputs[:PROBE])
    names = list(roles_of(copy, num_held=num_held))
    check_logits(copy, x, task.num_outputs, are_classes=task.num_classes > 0)

    def works(names: Sequence[str]) -> bool:
        return is_lent(
            copy, x, names, lambda net, lent: reweighted(net, under_all_names(net, lent))
        )

    if not works(names):
        wrong = [name for name in names if not works([name])] or names
        raise ConfigError(
            "a net must use its parameters through the layers that hold them, but other values in "
            f"{', '.join(f'`{name}`' for name in wrong)} do not change its outputs as they should. "
            "Keep layers as attributes or in an nn.ModuleList, and without hooks."
        )
