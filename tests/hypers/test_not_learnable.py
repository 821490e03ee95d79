import pytest
import torch
from torch import nn
from torch.nn import functional

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.hypers import HypersConfig
from tuneparts.hypers.config import OUTSIDE_LIKELIHOOD


@pytest.mark.parametrize("name", sorted(OUTSIDE_LIKELIHOOD))
def test_hyperparameters_outside_the_likelihood_are_refused_with_the_reason(name):
    with pytest.raises(ConfigError, match=f"`{name}` cannot be learnt as a hyper.*exactly zero"):
        parse(HypersConfig, {name: 0.1})
    with pytest.raises(ConfigError, match=f"`{name}` cannot be learnt"):
        HypersConfig().at({name: 0.1})


def test_their_gradient_at_fixed_weights_is_indeed_nothing():
    """Label smoothing, learning rate and weight decay move the weights, not the likelihood."""
    smoothing, lr, decay = (torch.tensor(v, requires_grad=True) for v in (0.1, 0.05, 0.01))
    net = nn.Linear(3, 2)
    hypers = HypersConfig(temperature=1.5).build(learnable=True, net=net, in_shape=(3,))
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 3, generator=draws), torch.tensor([0, 1, 0, 1, 1, 0])

    log_prob = hypers.predict(net, x, generator=draws, training=True).log_softmax(1)
    hard = -log_prob[torch.arange(6), y].mean()
    smoothed = (1 - smoothing) * hard - smoothing * log_prob.mean()
    weight_gradient = torch.autograd.grad(smoothed, net.weight)[0]
    with torch.no_grad():  # a step is taken at fixed values: equation 4 does not look into it
        net.weight -= lr * (weight_gradient + decay * net.weight)

    loss = functional.cross_entropy(hypers.predict(net, x, generator=draws, training=True), y)
    inside, *outside = torch.autograd.grad(
        loss, [*hypers.learnable(), smoothing, lr, decay], allow_unused=True
    )
    assert inside.abs().item() > 0
    assert outside == [None, None, None]
