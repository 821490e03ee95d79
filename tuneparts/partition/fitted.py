"""Partitioned training of one's own net on one's own arrays, without a search around it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import PrivateAttr
from torch import Tensor, nn

from tuneparts.config import parse
from tuneparts.data.task import Examples, Task
from tuneparts.errors import ConfigError
from tuneparts.models.net import NetConfig
from tuneparts.partition.learner import PartitionedConfig, PartitionedLearner
from tuneparts.training.learner import Context

Arrays = Tensor | npt.NDArray[Any]


@dataclass(frozen=True)
class Fitted:
    """A trained net with what was learnt besides its weights."""

    net: nn.Module
    """The net that was given, trained; an ordinary net again."""
    hypers: Mapping[str, float]
    """Learnt values by name: `rotation`, `dropout.0`, ..."""
    lml: float
    """L_ML in nats at the end; NaN with a single chunk."""
    history: list[Mapping[str, float]] = field(repr=False)
    """What each interval reported."""
    learner: PartitionedLearner = field(repr=False)

    @torch.no_grad()
    def predict(self, inputs: Arrays) -> Tensor:
        """Logits (B, K) of inputs like those of training, averaged over augmentation samples."""
        learner = self.learner
        self.net.eval()
        x = torch.as_tensor(_array(inputs), device=learner.context.device)
        return learner.predict(x, learner.generator("predict"))


def fit(
    net: nn.Module,
    inputs: Arrays,
    labels: Arrays,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    report: Callable[[Mapping[str, float]], None] | None = None,
    **fields: Any,
) -> Fitted:
    """Train a net and learn its hypers in one run, on all the data.

    Args:
        net: any module of linear, convolutional, norm and scalar layers, from inputs (B, ...) to
            logits (B, K); trained in place.
        inputs: float images (N, C, H, W) or vectors (N, D), scaled as the net wants them.
        labels: whole numbers (N,), 0 to K - 1.
        seed: of the chunks, the assignment, the batches and the augmentation.
        device: where to train; the net's own if None.
        report: called with the metrics of each interval.
        fields: those of `PartitionedConfig`, such as `passes`, `hypers`, `proportions`.
    """
    examples = _examples(inputs, labels)
    config = parse(PartitionedConfig, {"train_on": "train", **fields})
    if config.defaults == "seed":
        raise ConfigError(
            "a net that was built elsewhere cannot be drawn again from the seed, but `defaults` is "
            "`seed`. Use `initial`."
        )
    config = _GivenConfig(**(config.model_dump() | {"net": _given(net)}))
    first = next(iter(net.parameters()))
    nothing = examples.subset(np.arange(0))
    task = Task(
        name="given",
        train=examples,
        val=nothing,
        test=nothing,
        num_classes=int(examples.labels.max()) + 1,
        mean=(0.0,),
        std=(1.0,),
    )
    context = Context(task=task, seed=seed, device=torch.device(device or first.device))
    learner = PartitionedLearner(config, context)
    history: list[Mapping[str, float]] = []
    while not learner.finished:
        history.append(learner.advance())
        if report is not None:
            report(history[-1])
    values = {name.removeprefix("hyper/"): v for name, v in learner.hypers.values().items()}
    lml = history[-1].get("lml/total", float("nan"))
    return Fitted(learner.parts.merged(), values, lml, history, learner)


class _Given(NetConfig):
    """Stands where a config names its net, and hands out the one that exists."""

    name: Literal["given"] = "given"
    _net: nn.Module = PrivateAttr()

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:  # noqa: ARG002
        return self._net


class _GivenConfig(PartitionedConfig):
    """Configs travel as data and name their net; here the net exists already."""

    net: _Given  # type: ignore[assignment]


def _given(net: nn.Module) -> _Given:
    config = _Given()
    config._net = net
    return config


def _array(values: Arrays) -> npt.NDArray[Any]:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return np.asarray(array, dtype=np.float32)


def _examples(inputs: Arrays, labels: Arrays) -> Examples:
    x = _array(inputs)
    y = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if len(x) != len(y) or y.ndim != 1 or y.dtype.kind not in "iu" or (len(y) and y.min() < 0):
        raise ConfigError(
            "there must be one label, a whole number from 0 on, per input, but got inputs "
            f"{x.shape} and labels {y.shape} of type {y.dtype}."
        )
    return Examples(x, y.astype(np.int64))
