"""Which learning rate predicts the pull of a spring best, and does it help to learn the noise?

Your own data, made by a function, with real numbers to predict instead of classes. A function
may return arrays, a torch data set, a table with its target column, or an image folder. The search
splits it, keeps a digest of it, and selects by the mean squared error. Run it with
`tuneparts search examples/own_data.py --scale smoke --local`.
"""

import numpy as np
from torch import nn

import tuneparts as tp


def springs(num: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Stretch and stiffness of springs, and the force that they pull with; inputs around one."""
    draws = np.random.default_rng(0)
    stretch, stiffness = draws.uniform(-1, 1, num), draws.uniform(0.5, 2, num)
    force = stiffness * stretch + 0.5 * stretch**3 + 0.05 * draws.standard_normal(num)
    return np.stack([stretch, stiffness], axis=1), force


def small_net(in_shape: tuple[int, ...], num_outputs: int, width: int = 32) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Linear(in_shape[0], width), nn.Tanh(), nn.Linear(width, num_outputs))


def search(scale: tp.Scale) -> tp.Search:
    """Random search over the learning rate, and one run that learns the input noise."""
    random = tp.RandomSearch(scale.pick(smoke=2, cpu=8, paper=32))
    return tp.Search(
        data=tp.data.Data(
            name=springs, num_val=100, num_test=100, target="values", standardise=True
        ),
        net=small_net,
        steps=scale.pick(smoke=40, cpu=1000, paper=5000),
        seeds=scale.pick(smoke=1, cpu=3, paper=5),
        arms={
            "random": tp.Standard().searched_by(random, lr=tp.Uniform(1e-4, 1e-1, log=True)),
            "noise": tp.Partitioned(hypers=tp.hypers.Noise(std=0.1)),
        },
    )
