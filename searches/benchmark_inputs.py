"""Tuned at equal cost, which way to the hyperparameters is best for choosing inputs?

As `benchmark_digits`, on inputs generated as in `input_selection`, of which the first fifteen know
the label; 300 training and 150 validation examples, so that needless inputs hurt; an MLP of two
hidden layers of 64. Learners learn which inputs to keep; searching arms draw how many of the first
are kept, and so know their order: 30 points instead of two to the thirtieth.
"""

import tuneparts as tp
from studies.tuning import Tuned

NUM_INPUTS = 30


def search(scale: tp.Scale) -> tp.Search:
    steps = scale.pick(smoke=16, cpu=1600, paper=20_000)
    masks = [(1.0,) * kept + (0.0,) * (NUM_INPUTS - kept) for kept in range(1, NUM_INPUTS + 1)]
    setting = Tuned(
        shared={
            "data": tp.data.InputSelection(num_train=300, num_val=150, num_test=1000),
            "net": tp.nets.Mlp(widths=(64, 64)),
            "steps": steps,
            "interval": steps // 4,
            "batch_size": 50,
            "optimiser": tp.Adam(lr=0.003),
        },
        learnt={"mask": {"keep": 0.5}},
        starts={"hypers.mask": tp.Choice({f"{at:g}": {"keep": at} for at in (0.3, 0.5, 0.8)})},
        space={"hypers.mask.keep": tp.Choice(masks)},
        packed=8,
    )
    return setting.search(
        __doc__,
        scale=scale,
        references={"none": [], "oracle": {"mask": {"keep": masks[14]}}},
        found={"hyper/num_kept": 15.0},
    )
