"""Does one run learn how much to vary the contrast, as a random search would choose it?

A search with a hyperparameter of your own: the spread of a random factor of each input. It is one
class, with its numbers as fields and one method that says where it acts. Methods that learn
hyperparameters learn it together with the weights, others hold it, and a search varies its fields.
Run it with `tuneparts search examples/own_hyper.py --scale smoke --local`.
"""

from typing import Annotated

import torch
from torch import Tensor

import tuneparts as tp


class Gain(tp.hypers.Hyper):
    """Multiplies each input by exp(u), u uniform between minus and plus the spread."""

    is_random = True

    spread: Annotated[
        float, tp.hypers.Number(tp.hypers.POSITIVE, "largest log-factor", identity=0.0)
    ] = 0.1

    def on_inputs(self, x: Tensor, now: tp.hypers.Call) -> Tensor:
        """Inputs of the same shape (B, ...)."""
        u_B = torch.rand(len(x), generator=now.generator, device=x.device, dtype=x.dtype)
        factor_B = ((2 * u_B - 1) * now["spread"]).exp()
        return x * factor_B.view(-1, *[1] * (x.ndim - 1))


def search(scale: tp.Scale) -> tp.Search:
    """The spread learnt in one run, a net trained anew at it, and a random search."""
    gain, smoothing = Gain(), tp.hypers.LabelSmoothing()
    random = tp.RandomSearch(scale.pick(smoke=2, cpu=8, paper=32))
    return tp.Search(
        data=tp.data.Digits(num_val=300),
        net=tp.nets.DigitsCnn(),
        hypers=gain,
        metric="val/nll",
        steps=scale.pick(smoke=24, cpu=800, paper=8000),
        seeds=scale.pick(smoke=1, cpu=3, paper=5),
        arms={
            "learnt": tp.Partitioned(train_on="train", hyper_lr=0.01),
            "retrained": tp.Standard(hypers_from="learnt"),
            # Label smoothing changes the training loss only: it can be searched, not learnt.
            "random": tp.Standard(hypers=[gain, smoothing]).searched_by(
                random, spread=tp.Uniform(0, 2), rate=tp.Uniform(0, 0.3)
            ),
        },
    )
