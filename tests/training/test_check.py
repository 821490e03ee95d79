"""Every method learns every target, or refuses it by name before anything runs."""

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tuneparts as tp
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.core.schema import Direction, Metric
from tuneparts.data.target import Binary, OwnLoss, Target, Values
from tuneparts.data.task import Examples, Task
from tuneparts.methods import catalog, pwfn, superweights
from tuneparts.training.config import Method
from tuneparts.training.learner import Context

CLASSES_ONLY = {"hne", "laplace", "last_layer", "posthoc_laplace", "universally_slimmable"}
MAE = Metric("mae", Direction.DOWN, "", 4, "mean absolute error")


def absolute(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs[:, 0] - y).abs()


TARGETS: dict[str, Target] = {
    "binary": Binary(),
    "values": Values(),
    "own_loss": OwnLoss(absolute),
}


@functools.cache
def task(kind: str) -> Task:
    """Small images, bright on one side."""
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 100, (60, 1, 8, 8)).astype(np.uint8)
    shade = draws.integers(0, 150, 60)
    pixels[:, :, :, 4:] += shade[:, None, None, None].astype(np.uint8)
    labels = {"binary": shade > 75, "values": np.stack([shade, -shade], 1) / 75}
    target = TARGETS[kind]
    examples = Examples(pixels, target.prepared(labels.get(kind, shade / 75)))
    parts = [examples.subset(np.arange(start, start + 20)) for start in (0, 20, 40)]
    return Task("shades", *parts, num_classes=0, mean=(0.4,), std=(0.3,), target=target)


def build(config: Method, aim: Task) -> Any:
    return config.build(Context(task=aim, seed=0, device=torch.device("cpu")))


def tiny(method: str, **changes: Any) -> Method:
    sizes = {"steps": 6, "interval": 3, "batch_size": 5}
    return catalog.config_class(method)().replaced({**sizes, **changes})


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("method", catalog.METHODS.known)
def test_a_method_learns_a_target_or_refuses_it_by_name(method: str, kind: str) -> None:
    aim, config = task(kind), tiny(method)
    if method in CLASSES_ONLY:
        with pytest.raises(ConfigError, match=f"`{method}` learns classes only.*`{kind}`"):
            config.check(aim)
        with pytest.raises(ConfigError, match="learns classes only"):
            build(config, aim)
        return
    config.check(aim)
    learner = build(config, aim)
    while not learner.finished:
        row = learner.advance()
    declared = {metric.name for metric in aim.target.reported()}
    scored = {name for name in row if name.split("/")[0] in {"val", "test", "anytime"}}
    assert f"test/{aim.target.metrics[0].name}" in scored
    assert scored <= declared
    outputs = learner.final_module()(torch.as_tensor(aim.test.inputs[:3]))
    assert outputs.shape == (3, aim.num_outputs)


@pytest.mark.parametrize(
    ("method", "changes", "law"),
    [
        ("standard", {"hypers": {"averaging": "prob"}}, "`prob` averages probabilities"),
        ("standard", {"hypers": {"temperature": 2.0}}, "`temperature` divides the logits"),
        ("pwfn", {"ensemble": 2}, "`pwfn` learns classes only, because its `ensemble`"),
        ("deep_ensemble", {"interpolation_points": 3}, "its `interpolation_points` are scored"),
        ("federated", {"clients.skew": "labels"}, "only where labels are classes"),
    ],
)
def test_what_means_nothing_for_real_values_is_refused(method: str, changes, law: str) -> None:
    with pytest.raises(ConfigError, match=law):
        tiny(method, **changes).check(task("values"))


def embedded(in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(4 * in_shape[0], num_classes))


class TestTokens:
    @functools.cached_property
    def aim(self) -> Task:
        tokens = np.random.default_rng(0).integers(0, 9, (60, 5))
        parts = [Examples(tokens[i : i + 20], tokens[i : i + 20, 0] % 3) for i in (0, 20, 40)]
        return Task("tokens", *parts, num_classes=3, mean=(0.0,), std=(1.0,))

    @pytest.mark.parametrize(
        "method", ["standard", "validation", "deep_ensemble", "batch_ensemble"]
    )
    def test_they_stay_whole_all_the_way_to_the_net(self, method: str) -> None:
        net = {"members": [embedded] * 2} if method == "deep_ensemble" else {"net": embedded}
        learner = build(tiny(method, **net), self.aim)
        assert learner.advance()["train/loss"] > 0
        module = learner.final_module()
        assert module(torch.as_tensor(self.aim.test.inputs)).shape == (20, 3)

    @pytest.mark.parametrize(
        ("changes", "law"),
        [
            ({}, "`mlp` takes images or real numbers.*Use a net of your own"),
            ({"net": embedded, "hypers": {"noise": 0.1}}, "`hypers` has noise"),
            ({"net": embedded, "hypers": {"mask": {}}}, "`hypers` has mask"),
            ({"net": embedded, "augmentation": {"flip": True}}, "`augmentation` acts on images"),
        ],
    )
    def test_what_would_scale_or_blur_them_is_refused(self, changes, law: str) -> None:
        with pytest.raises(ConfigError, match=law):
            tiny("standard", **changes).check(self.aim)


def averaged(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs[:, 0] - y).abs().mean()


def detached(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs[:, 0].detach() - y).abs()


def number(outputs: Tensor, y: Tensor) -> float:
    return 1.0


def crashing(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs[:, 7] - y


class Undeclared(Target):
    metrics = (MAE,)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        return absolute(outputs, y)

    def scores(self, outputs: Tensor, y: Tensor) -> dict[str, float]:
        return {"mad": absolute(outputs, y).mean().item()}


class Wordy(Undeclared):
    def scores(self, outputs: Tensor, y: Tensor) -> Any:
        return "good"


@pytest.mark.parametrize(
    ("target", "law"),
    [
        (
            OwnLoss(averaged),
            r"one loss per example, here \(8,\), .* but .*averaged` gave tensor",
        ),
        (OwnLoss(number), "gave 1.0"),
        (OwnLoss(detached), "depends on the outputs, but .*detached` gave"),
        (OwnLoss(crashing), "crashing` raised IndexError"),
        (Undeclared(), r"has the metrics \['mae'\] and gave .*'mad'"),
        (Wordy(), "gave 'good'"),
    ],
)
def test_a_target_that_breaks_its_promises_is_refused_in_the_driver(target, law: str) -> None:
    part = Examples(np.zeros((20, 2), np.float32), np.arange(20, dtype=np.float32))
    aim = Task("t", part, part, part, num_classes=0, mean=(0.0,), std=(1.0,), target=target)
    with pytest.raises(ConfigError, match=law):
        parse(catalog.config_class("standard"), {}).check(aim)


class TestCalls:
    """The calls for one's own net take a target as well."""

    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    y = 0.5 * x[:, :2] + x[:, 2:]

    def net(self, num_outputs: int = 2) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, num_outputs))

    def test_partitioned_training_learns_values(self) -> None:
        fields = {"interval": 20, "batch_size": 10}
        found = tp.PartitionedRegressor(self.net(), steps=60, method=fields).fit(self.x, self.y)
        assert found.predict(self.x).shape == (60, 2)
        assert found.history_[-1]["train/loss"] < found.history_[0]["train/loss"]

    def test_members_are_averaged(self) -> None:
        found = superweights.fit(
            [self.net(), self.net()], self.x, self.y, target="values", steps=20, batch_size=10
        )
        mean = torch.stack([net(self.x) for net in found.members]).mean(dim=0)
        torch.testing.assert_close(found.predict(self.x), mean.detach())

    def test_compression_is_scored_by_the_target(self) -> None:
        small = pwfn.compress(
            self.net(1), (self.x, self.y[:, 0] > 0), target="binary", steps=20, batch_size=10
        )
        assert set(small.after) == {"accuracy", "nll", "ece", "brier", "auc"}

    def test_a_net_of_another_width_is_refused_and_not_broadcast(self) -> None:
        with pytest.raises(ConfigError, match="has 2 for 1 labels"):
            tp.PartitionedRegressor(self.net(), steps=4).fit(self.x, self.y[:, 0])
        with pytest.raises(ValueError, match="1d array"):
            tp.PartitionedClassifier(self.net(), steps=4).fit(self.x, self.y)

    def test_tokens_reach_the_net_as_they_are(self) -> None:
        tokens = torch.randint(9, (60, 5), generator=torch.Generator().manual_seed(0))
        small = pwfn.compress(
            embedded((5,), 3), (tokens, tokens[:, 0] % 3), steps=12, batch_size=10
        )
        assert small.covered == 1  # the embedding as well
