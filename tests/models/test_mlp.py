import pytest
import torch
from torch.nn.functional import gelu, linear, relu

from tuneparts.core import seeding
from tuneparts.models.mlp import Mlp


@pytest.mark.parametrize(("name", "activation"), [("relu", relu), ("gelu", gelu)])
@pytest.mark.parametrize("in_shape", [(12,), (3, 2, 2)])
def test_the_net_is_the_written_out_formula(name, activation, in_shape):
    with seeding.isolated(0, "init"):
        net = Mlp(widths=(5, 4), activation=name).build(in_shape, 3).double()
    for i, parameter in enumerate(net.parameters()):
        parameter.data = torch.randn(
            parameter.shape, generator=seeding.torch_generator(0, "p", i), dtype=torch.float64
        )
    w1, b1, w2, b2, w3, b3 = net.parameters()
    x = torch.randn(6, *in_shape, generator=seeding.torch_generator(0, "x"), dtype=torch.float64)
    hidden = activation(linear(x.reshape(6, 12), w1, b1))
    expected = linear(activation(linear(hidden, w2, b2)), w3, b3)
    torch.testing.assert_close(net(x), expected, rtol=1e-12, atol=1e-12)
