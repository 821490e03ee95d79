import pytest
import torch

from tuneparts.data.task import Task
from tuneparts.ensembles.slimmable import Slimmable, SlimmableConfig, SlimmableLearner
from tuneparts.errors import ConfigError
from tuneparts.models import DigitsCnn, NetConfig, WideResNet
from tuneparts.models.sizes import count_parameters
from tuneparts.training.learner import Context


def slimmable(*configs: NetConfig) -> Slimmable:
    nets = [config.build((1, 8, 8), 10) for config in configs]
    return Slimmable(nets, [1] * len(nets))


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


def test_both_widths_teach_the_shared_corner() -> None:
    model = slimmable(WIDE, SLIM)
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    weight = model.nets[0].conv2.weight
    (slim,) = torch.autograd.grad(model(x)[1].square().sum(), weight)
    assert slim[:16, :8].abs().sum() > 0
    assert slim[16:].abs().sum() == slim[:, 8:].abs().sum() == 0


def test_norms_are_private() -> None:
    model = slimmable(WideResNet(depth=10, width=3), WideResNet(depth=10, width=1.5))
    assert model.nets[0].norm.num_features == 2 * model.nets[1].norm.num_features


@pytest.mark.parametrize("configs", [(SLIM, WIDE), (WIDE, WideResNet(depth=10))])
def test_members_that_do_not_fit_are_refused(configs: tuple[NetConfig, NetConfig]) -> None:
    with pytest.raises(ConfigError, match="the widest first"):
        slimmable(*configs)


def test_the_learner_scores_every_width(toy: Task) -> None:
    config = SlimmableConfig().replaced({"passes": 2, "interval": 2, "batch_size": 8})
    row = SlimmableLearner(config, Context(toy, 0, torch.device("cpu"))).advance()
    assert row["anytime/flops.1"] < row["anytime/flops.0"]
