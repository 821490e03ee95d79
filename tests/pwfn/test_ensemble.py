import inspect

import torch
from torch import Tensor, nn

from tuneparts.pwfn import sigma
from tuneparts.pwfn.conversion import to_gaussian
from tuneparts.pwfn.ensemble import ensemble_logits
from tuneparts.pwfn.gaussian import sampled


def test_log_of_the_mean_probability(net: nn.Sequential, x_BCHW: Tensor) -> None:
    to_gaussian(net)
    sigma.initialise(net, 0.1)
    net.eval()
    result = ensemble_logits(
        net, lambda: net(x_BCHW), num_samples=3, generator=torch.Generator().manual_seed(0)
    )
    with sampled(net, torch.Generator().manual_seed(0)):
        probabilities = [net(x_BCHW).double().softmax(1) for _ in range(3)]
    torch.testing.assert_close(result.exp(), torch.stack(probabilities).mean(0))


def test_without_deviations_it_is_the_single_prediction(net: nn.Sequential, x_BCHW: Tensor) -> None:
    to_gaussian(net)
    sigma.initialise(net, 0.0)
    net.eval()
    result = ensemble_logits(
        net, lambda: net(x_BCHW), num_samples=5, generator=torch.Generator().manual_seed(0)
    )
    single = torch.log_softmax(net(x_BCHW).double(), dim=1)
    torch.testing.assert_close(result, single, rtol=0, atol=1e-6)


def test_it_takes_no_labels() -> None:
    assert set(inspect.signature(ensemble_logits).parameters) == {
        "net",
        "predict",
        "num_samples",
        "generator",
    }
