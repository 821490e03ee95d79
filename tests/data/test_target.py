"""Targets: their losses and scores."""

import math
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.schema import Direction, Metric
from tuneparts.data.target import Binary, Classes, OwnLoss, Target, Values, _from_anything
from tuneparts.data.task import Examples, Task


def absolute(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - y).abs().sum(dim=1)


class Absolute(Target):
    scale: float = 1.0
    metrics = (Metric("mae", Direction.DOWN, "", 4, "mean absolute error"),)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        return self.scale * absolute(outputs, y)

    def scores(self, outputs: Tensor, y: Tensor) -> dict[str, float]:
        return {"mae": self.losses(outputs, y).mean().item()}


CASES = [
    (Classes(), 3, torch.tensor([0, 2, 1, 1])),
    (Binary(), 1, torch.tensor([0, 1, 1, 0])),
    (Values(), 2, torch.arange(8.0).view(4, 2)),
    (OwnLoss(absolute), 2, torch.arange(8.0).view(4, 2)),
    (Absolute(scale=2.0), 2, torch.arange(8.0).view(4, 2)),
]
EACH = pytest.mark.parametrize(("target", "width", "y"), CASES, ids=lambda case: str(case)[:20])


def outputs(width: int, *lead: int) -> Tensor:
    return torch.randn(*lead, 4, width, generator=torch.Generator().manual_seed(1))


@EACH
class TestEvery:
    def test_losses_are_averaged_summed_or_kept_apart(
        self, target: Target, width: int, y: Tensor
    ) -> None:
        found = outputs(width).requires_grad_()
        each_B = target.loss(found, y, reduction="none")
        assert each_B.shape == (4,)
        torch.testing.assert_close(target.losses(found, y), each_B)
        torch.testing.assert_close(target.loss(found, y, reduction="sum"), each_B.sum())
        mean = target.loss(found, y)
        torch.testing.assert_close(mean, each_B.mean())
        mean.backward()
        assert found.grad is not None
        assert bool((found.grad != 0).any())

    def test_it_reports_what_it_declares(self, target: Target, width: int, y: Tensor) -> None:
        declared = {metric.name for metric in target.reported()}
        names = set(target.scores(outputs(width), y))
        assert {f"{split}/{name}" for split in ("val", "test") for name in names} == declared

    def test_it_survives_json(self, target: Target, width: int, y: Tensor) -> None:
        del width, y
        assert Target.made_from(target.model_dump(mode="json")) == target

    def test_equal_members_combine_to_one_of_them(
        self, target: Target, width: int, y: Tensor
    ) -> None:
        one = outputs(width)
        found = target.combined(torch.stack([one] * 3))
        assert target.scores(found, y) == pytest.approx(target.scores(one, y))

    def test_outputs_are_counted(self, target: Target, width: int, y: Tensor) -> None:
        assert target.count_outputs(y.numpy()) == width


def test_classes_are_cross_entropy_to_the_bit() -> None:
    found, y = outputs(3), torch.tensor([0, 2, 1, 1])
    for reduction in ("mean", "sum", "none"):
        expected = F.cross_entropy(found, y, reduction=reduction)
        assert torch.equal(Classes().loss(found, y, reduction=reduction), expected)


def test_binary_members_are_combined_by_their_probabilities() -> None:
    found_MBK = 50 * outputs(1, 3)
    expected = found_MBK.double().sigmoid().mean(dim=0)
    torch.testing.assert_close(Binary().combined(found_MBK).sigmoid(), expected)


def test_class_metrics_are_those_of_the_schema() -> None:
    for metric in Classes().reported():
        assert schema.lookup(metric.name) == metric


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("values", Values()),
        ({"kind": "binary"}, Binary()),
        (Absolute, Absolute()),
        (absolute, OwnLoss(function=f"{__name__}:absolute")),
        (f"{__name__}:Absolute", Absolute()),
        (Classes(), Classes()),
    ],
)
def test_a_target_is_given_in_several_ways(given, expected: Target) -> None:
    assert _from_anything(given) == expected


def test_unknown_names_and_lambdas_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="`regression` is not a known target"):
        _from_anything("regression")
    with pytest.raises(ConfigError, match="lambda"):
        _from_anything(lambda outputs, y: outputs)


class TestInATask:
    def task(self, target: Target, labels: np.ndarray) -> Task:
        part = Examples(np.zeros((4, 2), np.float32), labels)
        return Task("t", part, part, part, num_classes=0, mean=(0.0,), std=(1.0,), target=target)

    def test_it_says_how_many_outputs_a_net_has(self) -> None:
        assert self.task(Values(), np.zeros((4, 3), np.float32)).num_outputs == 3
        assert self.task(Binary(), np.array([0, 1, 1, 0])).num_outputs == 1
        assert self.task(Classes(), np.array([0, 1, 4, 0])).num_outputs == 5

    def test_it_is_pickled_by_name_and_made_when_asked_for(self, monkeypatch) -> None:
        """A worker has its task before it can import the code of a search."""
        content = pickle.dumps(self.task(Absolute(scale=3.0), np.zeros((4, 1), np.float32)))
        monkeypatch.delitem(globals(), "Absolute")
        twice = pickle.loads(pickle.dumps(pickle.loads(content)))
        monkeypatch.undo()
        assert twice.target == Absolute(scale=3.0)
        assert twice.target is twice.target


def slow_scores(probs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """One example at a time."""
    n = len(labels)
    right = [int(p.argmax() == y) for p, y in zip(probs, labels, strict=True)]
    bins: dict[int, list[tuple[float, int]]] = {}
    for p, hit in zip(probs, right, strict=True):
        bins.setdefault(math.ceil(p.max() * 15) - 1, []).append((p.max(), hit))
    return {
        "accuracy": sum(right) / n,
        "nll": -sum(math.log(p[y]) for p, y in zip(probs, labels, strict=True)) / n,
        "brier": sum(
            sum((p[k] - (k == y)) ** 2 for k in range(len(p)))
            for p, y in zip(probs, labels, strict=True)
        )
        / n,
        "ece": sum(
            len(b) / n * abs(np.mean([c for c, _ in b]) - np.mean([h for _, h in b]))
            for b in bins.values()
        ),
    }


@pytest.mark.parametrize("num_classes", [2, 10])
def test_scores_equal_the_definitions(num_classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, num_classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(num_classes, (200,), generator=generator)
    expected = slow_scores(logits.softmax(1).numpy(), labels.numpy())
    assert Classes().scores(logits, labels) == pytest.approx(expected, abs=1e-6)


class TestBinary:
    def test_its_scores_are_those_of_two_classes(self) -> None:
        logits = torch.randn(60, generator=torch.Generator().manual_seed(0))
        labels = (torch.arange(60) % 3 == 0).long()
        expected = Classes().scores(torch.stack([-logits / 2, logits / 2], dim=1), labels)
        found = Binary().scores(logits[:, None], labels)
        assert found.pop("auc") is not None
        assert found == pytest.approx(expected)

    @pytest.mark.parametrize("num_values", [3, 1000])
    def test_the_area_counts_pairs_and_ties_half(self, num_values: int) -> None:
        generator = torch.Generator().manual_seed(num_values)
        scores = torch.randint(num_values, (80,), generator=generator).float()
        labels = torch.randint(2, (80,), generator=generator)
        pairs = [
            float(one > zero) + 0.5 * float(one == zero)
            for one in scores[labels == 1].tolist()
            for zero in scores[labels == 0].tolist()
        ]
        assert Binary().scores(scores[:, None], labels)["auc"] == pytest.approx(
            sum(pairs) / len(pairs)
        )

    def test_the_area_of_one_class_is_left_out(self) -> None:
        assert "auc" not in Binary().scores(torch.zeros(3, 1), torch.ones(3, dtype=torch.long))


class TestValues:
    def test_scores_equal_the_definitions(self) -> None:
        generator = torch.Generator().manual_seed(0)
        y = torch.randn(50, 2, generator=generator) * torch.tensor([1.0, 10.0]) + 3
        values = y + torch.randn(50, 2, generator=generator)
        squares = ((values - y) ** 2).numpy().astype(float)
        around = ((y - y.mean(0)) ** 2).numpy().astype(float)
        found = Values().scores(values, y)
        assert found["mse"] == pytest.approx(squares.mean())
        assert found["rmse"] == pytest.approx(math.sqrt(squares.mean()))
        assert found["r2"] == pytest.approx((1 - squares.sum(0) / around.sum(0)).mean(), rel=1e-5)

    def test_r2_of_labels_that_do_not_vary_is_left_out(self) -> None:
        assert set(Values().scores(torch.zeros(4, 1), torch.ones(4, 1))) == {"mse", "rmse"}
