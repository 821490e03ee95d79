import torch
from torch.nn.functional import conv2d, linear, max_pool2d, relu

from tuneparts.core import seeding
from tuneparts.models.mnist_cnn import MnistCnn


def test_the_net_is_table_9_written_out():
    with seeding.isolated(0, "init"):
        net = MnistCnn(channels=(3, 4), hidden=(6, 5)).build((2, 14, 14), 3).double()
    for i, parameter in enumerate(net.parameters()):
        parameter.data = torch.randn(
            parameter.shape, generator=seeding.torch_generator(0, "p", i), dtype=torch.float64
        )
    w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = net.parameters()
    x_in = torch.randn(5, 2, 14, 14, generator=seeding.torch_generator(0, "x"), dtype=torch.float64)
    x = max_pool2d(relu(conv2d(x_in, w1, b1, padding=2)), 2)
    x = max_pool2d(relu(conv2d(x, w2, b2, padding=2)), 2)
    x = relu(linear(x.reshape(5, 4 * 3 * 3), w3, b3))
    x = relu(linear(x, w4, b4))
    torch.testing.assert_close(net(x_in), linear(x, w5, b5), rtol=1e-12, atol=1e-12)
