"""Does one run learn how much to vary the contrast, as a random search would choose it?

A search with a hyper of its own: the spread of a random factor of each input. It is one class, with
its numbers as fields and one method that says where it acts. Methods that learn hypers learn it
beside the weights, others hold it, and a search varies its fields. Run it with
`tuneparts search examples/own_hyper.py --scale smoke --local`.
"""

from typing import Annotated

import torch
from torch import Tensor

from tuneparts.data.config import Data
from tuneparts.hypers import Call, Hyper, Number
from tuneparts.hypers.hyper import POSITIVE
from tuneparts.hypers.kinds import LabelSmoothing
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.partitioned.config import Partitioned
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import Arm
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search


class Gain(Hyper):
    """Multiplies each input by exp(u), u uniform between minus and plus the spread."""

    is_random = True

    spread: Annotated[float, Number(POSITIVE, "largest log-factor", identity=0.0)] = 0.1

    def on_inputs(self, x: Tensor, now: Call) -> Tensor:
        """Inputs of the same shape (B, ...)."""
        u_B = torch.rand(len(x), generator=now.generator, device=x.device, dtype=x.dtype)
        factor_B = ((2 * u_B - 1) * now["spread"]).exp()
        return x * factor_B.view(-1, *[1] * (x.ndim - 1))


def search(scale: Scale) -> Search:
    """The spread learnt in one run, a net trained anew at it, and a random search."""
    steps = scale.pick(smoke=24, cpu=800, paper=8000)
    shared = {"steps": steps, "interval": steps // 4, "net": "digits_cnn", "train_on": "train"}
    gain = {"gain": Gain()}
    return Search(
        name="own_hyper",
        question="Does one run learn how much to vary the contrast?",
        scale=scale,
        data=Data(name="digits", num_val=300),
        metric="val/nll",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        arms=(
            Arm(name="learnt", config=Partitioned(**shared, hypers=gain, hyper_lr=0.01)),
            Arm(name="retrained", config=Standard(**shared), follows="learnt"),
            Arm(
                name="random",
                # Label smoothing changes the training loss only: it can be searched, not learnt.
                config=Standard(**shared, hypers={**gain, "smoothing": LabelSmoothing()}),
                algorithm=RandomSearch(num_trials=scale.pick(smoke=2, cpu=8, paper=32)),
                space={
                    "hypers.gain.spread": Uniform(low=0.0, high=2.0),
                    "hypers.smoothing.rate": Uniform(low=0.0, high=0.3),
                },
            ),
        ),
    )
