"""How wide must a small convolutional net be to read digits?

A search with a net of its own, under two methods that know nothing of it. A builder is any
function or `nn.Module` class that takes the shape of an input and the number of classes first; what
else it takes can be given and searched: `net.width`. Run it with
`tuneparts search examples/own_net.py --scale smoke --local`.
"""

from torch import nn

from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.partitioned import Partitioned
from tuneparts.nets import Own
from tuneparts.search.algorithms.base import GridSearch
from tuneparts.search.arm import Arm
from tuneparts.search.space import Choice
from tuneparts.search.spec import Scale, Search


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


def search(scale: Scale) -> Search:
    """The net at three widths, and its rotation learnt at one."""
    steps = scale.pick(smoke=20, cpu=600, paper=6000)
    shared = {"steps": steps, "interval": steps // 2}
    return Search(
        name="own_net",
        question="How wide must a small convolutional net be to read digits?",
        scale=scale,
        data=Data(name="digits", num_val=300),
        metric="val/accuracy",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        arms=(
            Arm(
                name="widths",
                config=Standard(**shared, net=Own(small_net)),
                algorithm=GridSearch(),
                space={"net.width": Choice(options=(2, 8, 32))},
            ),
            Arm(
                name="partitioned",
                config=Partitioned(**shared, net=Own(small_net, width=16), hypers={"affine": {}}),
            ),
        ),
    )
