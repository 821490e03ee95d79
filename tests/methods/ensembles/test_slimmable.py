from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.task import Task
from tuneparts.methods.ensembles._deep import narrowed
from tuneparts.methods.ensembles._slimmable import SlimmableNets
from tuneparts.methods.ensembles.config import Slimmable, UniversallySlimmable
from tuneparts.nets import DigitsCnn, MobileNetV2, NetConfig, WideResNet
from tuneparts.nets.sizes import count_parameters

Start = Callable[..., Any]


def slimmable(*configs: NetConfig) -> SlimmableNets:
    nets = [config.build((1, 8, 8), 10) for config in configs]
    return SlimmableNets(nets, [1] * len(nets))


WIDE, SLIM = DigitsCnn(), DigitsCnn(channels=(8, 16), hidden=32)


def test_a_slim_member_is_the_first_channels_of_the_wide_one() -> None:
    model = slimmable(WIDE, SLIM).eval()
    alone = SLIM.build((1, 8, 8), 10).eval()
    wide = model.nets[0]
    with torch.no_grad():
        for name, p in alone.named_parameters():
            if name.endswith("weight"):
                p.copy_(wide.get_parameter(name)[tuple(slice(n) for n in p.shape)])
            else:
                p.copy_(model.nets[1].get_parameter(name))
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model(x)[0], wide(x))
    torch.testing.assert_close(model(x)[1], alone(x))
    torch.testing.assert_close(model.plain(1).eval()(x), alone(x))


def test_the_slim_member_adds_only_biases_and_norms() -> None:
    model = slimmable(WIDE, SLIM)
    own = [name for name, _ in model.nets[1].named_parameters()]
    assert all(name.endswith("bias") for name in own)
    wide = count_parameters(WIDE.build((1, 8, 8), 10))
    assert count_parameters(model) == wide + 8 + 16 + 32 + 10


def test_threads_that_run_the_members_at_once_get_the_right_outputs() -> None:
    model = slimmable(WideResNet(depth=10, width=3), WideResNet(depth=10, width=1.5)).eval()
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = model(x)
    with ThreadPoolExecutor(4) as pool:
        assert all(
            torch.equal(logits, expected) for logits in pool.map(lambda _: model(x), range(20))
        )


@pytest.mark.parametrize("configs", [(SLIM, WIDE), (WIDE, WideResNet(depth=10))])
def test_members_that_do_not_fit_are_refused(configs: tuple[NetConfig, NetConfig]) -> None:
    with pytest.raises(ConfigError, match="the widest first"):
        slimmable(*configs)


SHAPE = (1, 8, 8)
WRN = WideResNet(depth=10, width=2)


def batch() -> Tensor:
    return torch.randn(5, *SHAPE, generator=torch.Generator().manual_seed(0))


def copied(widest: nn.Module, config: NetConfig, num_classes: int = 10) -> nn.Module:
    """A net of its own with the first entries of all the widest one's parameters."""
    net = config.build(SHAPE, num_classes)
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(widest.get_parameter(name)[tuple(slice(n) for n in p.shape)])
    return net


def shuffled(net: nn.Module) -> nn.Module:
    """Norms that scale and shift, so that cutting them wrongly shows."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return net


def universal(start: Start, **changes: Any) -> Any:
    return start(UniversallySlimmable, **{"net": WRN, "recalibrate": 3, **changes})


@pytest.mark.parametrize("widest", [WRN, DigitsCnn(), MobileNetV2(width=0.5)], ids=repr)
def test_a_member_is_the_first_channels_of_everything(widest: NetConfig) -> None:
    slim = narrowed(widest, 0.5)
    nets = [shuffled(net.build(SHAPE, 10)) for net in (widest, slim)]
    model = SlimmableNets(nets, [2, 1], cuts_all=True)
    alone = copied(model.nets[0], slim)
    assert count_parameters(model) == count_parameters(widest.build(SHAPE, 10))
    torch.testing.assert_close(model(batch())[1], alone(batch()))
    model.eval()
    torch.testing.assert_close(model(batch())[1], alone.eval()(batch()))
    torch.testing.assert_close(model.plain(1).eval()(batch()), alone(batch()))
    assert torch.equal(model(batch())[0], model.nets[0](batch()))


def test_a_step_is_the_sandwich_with_the_widest_as_teacher(start: Start, toy: Task) -> None:
    learner = universal(start, widths=(1.0, 0.5), num_trained=4)
    widest = shuffled(learner.model.nets[0])
    middle = learner._between()
    assert len(middle) == 2
    learner._widths = universal(start)._widths
    x, y = learner.next_batch()
    got = learner.losses(x, y)

    teacher = widest(x)
    expected = [F.cross_entropy(teacher, y)]
    for config in (narrowed(WRN, 0.5), *middle):
        log_probs = copied(widest, config, toy.num_classes)(x).log_softmax(dim=1)
        expected.append(-(teacher.softmax(dim=1) * log_probs).sum(dim=1).mean())
    torch.testing.assert_close(got, torch.stack(expected))


def test_the_teacher_learns_from_labels_only(start: Start) -> None:
    learner = universal(start)
    x, y = learner.next_batch()
    loss = learner.losses(x, y)
    weight = learner.model.nets[0].get_parameter("classifier.weight")
    (slope,) = torch.autograd.grad(loss[1], weight, retain_graph=True)
    # The narrowest net has half the features: what it does not have hears nothing of its loss.
    assert slope[:, : slope.shape[1] // 2].any()
    assert not slope[:, slope.shape[1] // 2 :].any()


def test_random_widths_lie_between_and_differ(start: Start) -> None:
    learner = universal(start, widths=(1.0, 0.7, 0.4), num_trained=60)
    widths = [config.width for config in learner._between() if isinstance(config, WideResNet)]
    assert len(widths) == 58
    # 0.4 lies between two steps of the grid.
    assert 0.8 < min(widths) < 1.0
    assert 1.8 < max(widths) <= 2.0
    assert learner._narrowest == narrowed(WRN, 0.4)


def test_statistics_are_those_of_each_width(start: Start) -> None:
    learner = universal(start)
    seen: list[Tensor] = []
    learner.model.nets[1].stem.register_forward_hook(lambda _m, _i, out: seen.append(out))
    learner.step()
    seen.clear()
    learner.evaluate()
    maps = [out for out in seen if len(out) == 8][:3]
    norm = learner.model.nets[1].stage1_block1.norm1
    mean = torch.stack([m.mean(dim=(0, 2, 3)) for m in maps]).mean(dim=0)
    variance = torch.stack([m.var(dim=(0, 2, 3)) for m in maps]).mean(dim=0)
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, variance)


@pytest.mark.parametrize(
    "change",
    [{"widths": (1.0, 0.75)}, {"num_trained": 3}, {"recalibrate": 1}, {"net": DigitsCnn()}],
)
def test_every_field_matters(start: Start, change: dict[str, Any]) -> None:
    usual, other = (
        universal(start).advance(),
        universal(start, **change).advance(),
    )
    assert usual != other


@pytest.mark.parametrize("widths", [(1.0,), (0.9, 0.5), (1.0, 0.5, 0.5), (1.0, 0.0)])
def test_widths_fall_from_one(widths: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="widths"):
        parse(UniversallySlimmable, {"widths": widths})


def test_a_net_whose_layers_depend_on_its_width_is_refused(start: Start) -> None:
    with pytest.raises(ConfigError, match="shortcut"):
        universal(start, net=WideResNet(depth=10, width=1))


def test_every_width_is_scored(start: Start) -> None:
    three = universal(start, steps=2, widths=(1.0, 0.75, 0.5))
    for learner, num in ((start(Slimmable, steps=2), 2), (three, 3)):
        row = learner.advance()
        costs = [row[f"anytime/flops.{member}"] for member in range(num)]
        assert costs == sorted(set(costs), reverse=True)
