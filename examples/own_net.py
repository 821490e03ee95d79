"""How wide must a small convolutional net be to read digits?

A search with your own net, under two methods that know nothing of it. A builder is any
function or `nn.Module` class that takes the shape of an input and the number of classes first; what
else it takes can be given and searched: `net.width`. Run it with
`tuneparts search examples/own_net.py --scale smoke --local`.
"""

from torch import nn

import tuneparts as tp


def small_net(in_shape: tuple[int, ...], num_classes: int, width: int = 8) -> nn.Module:
    """One convolution, pooled, and a linear layer."""
    channels, height, depth = in_shape
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(width * (height // 2) * (depth // 2), num_classes),
    )


def search(scale: tp.Scale) -> tp.Search:
    """The net at three widths, and its rotation learnt at one."""
    widths = tp.Choice([2, 8, 32])
    return tp.Search(
        data=tp.data.Digits(num_val=300),
        net=tp.nets.Own(small_net),
        steps=scale.pick(smoke=20, cpu=600, paper=6000),
        seeds=scale.pick(smoke=1, cpu=3, paper=5),
        arms={
            "widths": tp.Standard().searched_by(tp.GridSearch(), {"net.width": widths}),
            "partitioned": tp.Partitioned(net=tp.nets.Own(small_net, width=16), hypers=tp.Affine()),
        },
    )
