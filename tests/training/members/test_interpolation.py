import torch
from torch import nn

from tuneparts.training.predictions import accuracies_between


def classifier(weight: list[list[float]]) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor(weight))
    return net


X, Y = torch.eye(2), torch.arange(2)


def test_the_ends_are_the_nets_and_the_middle_their_mean() -> None:
    right = classifier([[1, 0], [0, 1]])
    wrong = classifier([[0, 2], [2, 0]])
    assert accuracies_between(right, wrong, [(X, Y)], 5) == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert accuracies_between(right, right, [(X, Y)], 3) == [1.0, 1.0, 1.0]
    assert accuracies_between(wrong, right, [(X, Y), (X, Y)], 2) == [0.0, 1.0]


def test_nets_and_their_statistics_stay_as_they_are() -> None:
    nets = [nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval() for _ in range(2)]
    before = [{k: v.clone() for k, v in net.state_dict().items()} for net in nets]
    accuracies_between(nets[0], nets[1], [(X, Y)], 3)
    for net, state in zip(nets, before, strict=True):
        assert not net.training
        for name, value in net.state_dict().items():
            assert torch.equal(value, state[name])
