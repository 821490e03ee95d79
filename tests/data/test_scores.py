import math

import numpy as np
import pytest
import torch

from tuneparts.data.scores import area_under_curve, binary_scores, class_scores, value_scores


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
    assert class_scores(logits, labels) == pytest.approx(expected, abs=1e-6)


def test_a_certain_and_right_prediction_is_perfect() -> None:
    logits = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    found = class_scores(logits, torch.tensor([0, 1]))
    assert found == pytest.approx({"accuracy": 1, "nll": 0, "ece": 0, "brier": 0}, abs=1e-12)


class TestBinary:
    def test_its_scores_are_those_of_two_classes(self) -> None:
        logits = torch.randn(60, generator=torch.Generator().manual_seed(0))
        labels = (torch.arange(60) % 3 == 0).long()
        expected = class_scores(torch.stack([-logits / 2, logits / 2], dim=1), labels)
        found = binary_scores(logits, labels)
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
        assert area_under_curve(scores, labels) == pytest.approx(sum(pairs) / len(pairs))

    def test_the_area_of_one_class_is_left_out(self) -> None:
        assert "auc" not in binary_scores(torch.zeros(3), torch.ones(3, dtype=torch.long))


class TestValues:
    def test_scores_equal_the_definitions(self) -> None:
        generator = torch.Generator().manual_seed(0)
        y = torch.randn(50, 2, generator=generator) * torch.tensor([1.0, 10.0]) + 3
        values = y + torch.randn(50, 2, generator=generator)
        squares = ((values - y) ** 2).numpy().astype(float)
        around = ((y - y.mean(0)) ** 2).numpy().astype(float)
        found = value_scores(values, y)
        assert found["mse"] == pytest.approx(squares.mean())
        assert found["rmse"] == pytest.approx(math.sqrt(squares.mean()))
        assert found["r2"] == pytest.approx((1 - squares.sum(0) / around.sum(0)).mean(), rel=1e-5)

    def test_r2_of_labels_that_do_not_vary_is_left_out(self) -> None:
        assert set(value_scores(torch.zeros(4, 1), torch.ones(4, 1))) == {"mse", "rmse"}
