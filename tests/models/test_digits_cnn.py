import torch
from torch.nn.functional import conv2d, linear, max_pool2d, relu

from tuneparts.core import seeding
from tuneparts.models.digits_cnn import DigitsCnn


def test_the_net_is_the_written_out_formula():
    with seeding.isolated(0, "init"):
        net = DigitsCnn(channels=(3, 4), hidden=6).build((1, 8, 8), 3).double()
    for i, parameter in enumerate(net.parameters()):
        parameter.data = torch.randn(
            parameter.shape, generator=seeding.torch_generator(0, "p", i), dtype=torch.float64
        )
    w1, b1, w2, b2, w3, b3, w4, b4 = net.parameters()
    x_in = torch.randn(5, 1, 8, 8, generator=seeding.torch_generator(0, "x"), dtype=torch.float64)
    x = max_pool2d(relu(conv2d(x_in, w1, b1, padding=1)), 2)
    x = max_pool2d(relu(conv2d(x, w2, b2, padding=1)), 2)
    x = relu(linear(x.reshape(5, 4 * 2 * 2), w3, b3))
    torch.testing.assert_close(net(x_in), linear(x, w4, b4), rtol=1e-12, atol=1e-12)
