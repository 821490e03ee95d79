"""Which learning rate predicts the pull of a spring best, and does it help to learn the noise?

Data of its own, made by a function, with real numbers to predict instead of classes. A function
may return arrays, a torch data set, a table with its target column, or an image folder. The search
splits it, keeps a digest of it, and selects by the mean squared error. Run it with
`tuneparts search examples/own_data.py --scale smoke --local`.
"""

import numpy as np
from torch import nn

from tuneparts import Arm, Data, Scale, Search, Uniform
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.partitioned import Partitioned
from tuneparts.search.algorithms.base import RandomSearch


def springs(num: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Stretch and stiffness of springs, and the force that they pull with; inputs around one."""
    draws = np.random.default_rng(0)
    stretch, stiffness = draws.uniform(-1, 1, num), draws.uniform(0.5, 2, num)
    force = stiffness * stretch + 0.5 * stretch**3 + 0.05 * draws.standard_normal(num)
    return np.stack([stretch, stiffness], axis=1), force


def small_net(in_shape: tuple[int, ...], num_outputs: int, width: int = 32) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Linear(in_shape[0], width), nn.Tanh(), nn.Linear(width, num_outputs))


def search(scale: Scale) -> Search:
    """Random search over the learning rate, and one run that learns the input noise."""
    steps = scale.pick(smoke=40, cpu=1000, paper=5000)
    shared = {"steps": steps, "interval": steps // 2, "net": small_net}
    return Search(
        name="own_data",
        question="Which learning rate predicts the pull of a spring best?",
        scale=scale,
        data=Data(name=springs, num_val=100, num_test=100, target="values", standardise=True),
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        arms=(
            Arm(
                name="random",
                config=Standard(**shared),
                algorithm=RandomSearch(num_trials=scale.pick(smoke=2, cpu=8, paper=32)),
                space={"optimiser.lr": Uniform(low=1e-4, high=1e-1, log=True)},
            ),
            Arm(name="noise", config=Partitioned(**shared, hypers={"noise": 0.1})),
        ),
    )
