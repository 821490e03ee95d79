import torch
from torch import Tensor, nn

from tuneparts.training.step import recalibrate


def test_statistics_are_plain_averages_over_batches() -> None:
    net = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm1d(3, momentum=0.3)).train()
    net[1].running_mean.fill_(9.0)
    generator = torch.Generator().manual_seed(0)
    batches = [2 + torch.randn(10, 3, generator=generator) for _ in range(4)]
    recalibrate(net, batches, net)
    mean = torch.stack([x.mean(0) for x in batches]).mean(0)
    variance = torch.stack([x.var(0) for x in batches]).mean(0)
    torch.testing.assert_close(net[1].running_mean, mean)
    torch.testing.assert_close(net[1].running_var, variance)
    assert net[1].momentum == 0.3
    assert net.training
    assert net[0].training
    net.eval()
    recalibrate(net, batches, net)
    assert not net[1].training


def test_weights_do_not_change() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    x_BCHW = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    recalibrate(net, [x_BCHW], net)
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None


def test_a_net_without_batch_norm_is_not_run() -> None:
    def refuse(x: Tensor) -> Tensor:
        raise AssertionError

    recalibrate(nn.Sequential(nn.Linear(2, 2)), [torch.zeros(1, 2)], refuse)
    untracked = nn.BatchNorm1d(2, track_running_stats=False)
    recalibrate(untracked, [torch.zeros(1, 2)], refuse)
