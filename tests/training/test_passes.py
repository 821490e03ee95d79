"""Recomputed activations: the same gradients from less memory, and what cannot be cut."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tuneparts import seeding
from tuneparts.baselines.standard import StandardConfig
from tuneparts.bench.gauges import peak_bytes
from tuneparts.data.config import DataConfig
from tuneparts.data.target import Classes
from tuneparts.data.task import Task
from tuneparts.errors import ConfigError
from tuneparts.models import NETS
from tuneparts.partition.node import MixedBatch
from tuneparts.partition.subnetwork import Partitioned
from tuneparts.search import load
from tuneparts.search.check import check
from tuneparts.testing.learner import LearnerContract, history
from tuneparts.training.hyper import HypersConfig
from tuneparts.training.learner import Context
from tuneparts.training.passes import Passes, run
from tuneparts.training.runtime import Runtime
from tuneparts.training.step import gradients, loss_on

CPU = torch.device("cpu")
NUM_SAMPLES = 20


@pytest.fixture(scope="module")
def task() -> Task:
    return DataConfig(name="stripes", num_train=96, num_val=32, num_test=32).load()


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 64, 3),
    ).double()


def _gradients(segments: int) -> tuple[list[Tensor], int]:
    """Of weights and hypers at 20 samples of digits, and the peak of memory."""
    with seeding.isolated(0, "init"):
        net = NETS["digits_cnn"]().build((1, 8, 8), 3).double()
    config = HypersConfig(affine={"rotation": 0.5}, samples=NUM_SAMPLES)
    hypers = config.build(learnable=True, net=net, in_shape=(1, 8, 8), num_outputs=3).double()
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    passes = Passes(Runtime(checkpoint_segments=segments), CPU)
    found: list[Tensor | None] = []

    def step() -> None:
        loss = loss_on(
            (x, torch.tensor([0, 1, 2, 0, 1, 2])),
            net=net,
            hypers=hypers,
            target=Classes(),
            generator=torch.Generator().manual_seed(2),
        )
        found.extend(gradients(loss, [*net.parameters(), *hypers.learnable()]))

    with passes.training():
        peak = peak_bytes(step)
    return [one for one in found if one is not None], peak


def test_twenty_samples_need_the_memory_of_few() -> None:
    whole, cut = _gradients(1), _gradients(NUM_SAMPLES)
    assert len(whole[0]) == len(cut[0]) > 1
    for one, other in zip(whole[0], cut[0], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-13)
    assert cut[1] < whole[1] / 4


def _mixed_gradients(call: Callable[[MixedBatch, Tensor], Tensor]) -> list[Tensor]:
    x = torch.randn(12, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    parts = Partitioned(_net(), proportions=(0.6, 0.2, 0.2), seed=0, scheme="node", example=x[:1])
    batch = MixedBatch(parts, torch.tensor([1] * 5 + [2] * 4 + [3] * 3))
    found = batch.gradients(call(batch, x).square().sum())
    return [one for grads in found.values() for one in grads if one is not None]


def test_a_mixed_batch_is_cut_across_levels() -> None:
    passes = Passes(Runtime(checkpoint_segments=5), CPU)
    whole = _mixed_gradients(lambda batch, x: batch.run(x))
    with passes.training():
        cut = _mixed_gradients(run)
    assert len(whole) == len(cut)
    for one, other in zip(whole, cut, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-13)


def test_a_run_with_recomputation_is_the_same_run(task: Task) -> None:
    config = StandardConfig(**LearnerContract.short, net="digits_cnn")
    rows = [
        [row["train/loss"] for row in history(one.build(Context(task, 0, CPU)))]
        for one in (config, config.replaced({"runtime.checkpoint_segments": 4}))
    ]
    assert rows[0] == pytest.approx(rows[1], rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"net": "wide_resnet"}, "is a BatchNorm2d"),
        ({"net": "mlp", "hypers.dropout": {"rate": 0.5}}, "act on activations"),
    ],
)
def test_what_depends_on_the_whole_batch_is_refused(
    task: Task, changes: dict[str, object], named: str
) -> None:
    config = StandardConfig(**LearnerContract.short, runtime=Runtime(checkpoint_segments=2))
    learner = config.replaced(changes).build(Context(task, 0, CPU))
    with pytest.raises(ConfigError, match=named):
        learner.advance()


def test_the_driver_refuses_it_before_anything_is_written() -> None:
    changes = ["none.runtime.checkpoint_segments=2", 'none.net={"name": "wide_resnet"}']
    search = load.load("rotated_digits", scale="smoke", arms=["none"], changes=changes)
    with pytest.raises(ConfigError, match="arm `none` cannot train so: pieces of a batch"):
        check(search)
