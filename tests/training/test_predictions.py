import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tuneparts.data.target import Classes
from tuneparts.training.members import (
    _accuracies_between,
    _differences,
    _operating_points,
    _subsets,
)


@pytest.mark.parametrize("num", [1, 2, 4, 6])
def test_every_subset_is_there_once(num: int) -> None:
    found = _subsets(num)
    assert len(found) == len(set(found)) == 2**num - 1
    assert found[-1] == tuple(range(num))


def test_large_ensembles_have_their_prefixes() -> None:
    assert _subsets(7) == [tuple(range(size)) for size in range(1, 8)]


def test_costs_add_up_and_the_full_set_is_the_ensemble() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(3, 20, 4, generator=generator), torch.arange(20) % 4
    points = _operating_points(logits, labels, [10, 1, 100])
    assert [point.flops for point in points] == [1, 10, 11, 100, 101, 110, 111]
    assert "anytime/val_nll.0_1" in points[2].metrics("val")
    whole = Classes().scores(Classes().combined(logits), labels)
    assert (points[-1].accuracy, points[-1].nll) == (whole["accuracy"], whole["nll"])
    alone = Classes().scores(logits[1], labels)
    assert points[0].nll == pytest.approx(alone["nll"])


def classifier(weight: list[list[float]]) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor(weight))
    return net


X, Y = torch.eye(2), torch.arange(2)


def test_the_ends_are_the_nets_and_the_middle_their_mean() -> None:
    right = classifier([[1, 0], [0, 1]])
    wrong = classifier([[0, 2], [2, 0]])
    assert _accuracies_between(right, wrong, [(X, Y)], 5) == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert _accuracies_between(right, right, [(X, Y)], 3) == [1.0, 1.0, 1.0]
    assert _accuracies_between(wrong, right, [(X, Y), (X, Y)], 2) == [0.0, 1.0]


def test_nets_and_their_statistics_stay_as_they_are() -> None:
    nets = [nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval() for _ in range(2)]
    before = [{k: v.clone() for k, v in net.state_dict().items()} for net in nets]
    _accuracies_between(nets[0], nets[1], [(X, Y)], 3)
    for net, state in zip(nets, before, strict=True):
        assert not net.training
        for name, value in net.state_dict().items():
            assert torch.equal(value, state[name])


def logits(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3


def test_the_prediction_is_the_mean_of_probabilities() -> None:
    logits_MNK = logits(4, 7, 5)
    expected = logits_MNK.softmax(dim=2).mean(dim=0)
    torch.testing.assert_close(Classes().combined(logits_MNK).exp(), expected)


def test_differences_of_a_hand_example() -> None:
    predicted = torch.tensor([[0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1]])
    labels = torch.tensor([0, 0, 0, 1])
    found = _differences(F.one_hot(predicted, 2).double(), labels)
    errors = [1 / 4, 1 / 4, 1 / 4]
    assert found["member_accuracy"] == pytest.approx(1 - np.mean(errors))
    assert found["disagreement"] == pytest.approx((2 / 4 + 2 / 4 + 2 / 4) / 3)
    assert found["diversity"] == pytest.approx(2.0)


def test_diversity_is_a_mean_over_ordered_pairs() -> None:
    predicted = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    found = _differences(F.one_hot(predicted, 2).double(), torch.zeros(4, dtype=torch.long))
    errors = [0.5, 0.25, 0.0]
    differ = {(0, 1): 0.25, (0, 2): 0.5, (1, 2): 0.25}
    ratios = [
        differ[min(i, j), max(i, j)] / errors[i]
        for i in range(3)
        for j in range(3)
        if i != j and errors[i]
    ]
    assert found["diversity"] == pytest.approx(np.mean(ratios))


def test_equal_members_are_not_diverse_and_perfect_ones_have_none() -> None:
    one = logits(1, 20, 3)
    labels = (one[0].argmax(dim=1) + 1) % 3
    assert _differences(one.repeat(3, 1, 1), labels)["diversity"] == 0
    perfect = _differences(one.repeat(2, 1, 1), one[0].argmax(dim=1))
    assert perfect == {"member_accuracy": 1.0, "disagreement": 0.0}
    assert set(_differences(one, labels)) == {"member_accuracy"}
