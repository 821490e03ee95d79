"""Which form of partitioned training gives the best net at the same steps, on rotated digits?

Mlodozeniec et al. (2023) deal out single weights, update one partition in each step and take a
hyper step after each. The arms change one thing after the other: hidden units instead of single
weights and mixed batches (their appendix C), fewer hyper steps, weights and hyperparameters in one
step, and a last stage of ordinary training (`released`). Data, net, rates and steps are those of
`random_vs_partitioned`; the hyper rate times hyper steps is 18, and 36 in arms called `far`. Every
arm trains on 997 digits and is compared by 300 validation digits. Every seed draws the data anew.
`held_out_...` is validation-set optimisation as a special case of the same learner: all weights in
the first partition, a fifth of the data held out, and given back in the last stage.
"""

from functools import partial

import tuneparts as tp
from studies import after_question
from studies.comparison import on_digits
from studies.forms import FAR, HELD_OUT, JOINT, LEAN, MIXED, form


def search(scale: tp.Scale) -> tp.Search:
    setting = on_digits(scale, reports=4)
    arm, two = partial(form, setting, train_on="train"), (0.8, 0.2)
    late = partial(arm, late=0.25)
    return tp.Search(
        **setting.shared,
        hypers=setting.hypers,
        notes=after_question(__doc__),
        seeds=scale.pick(smoke=(0,), cpu=(100, 101, 102, 103, 104), paper=(100, 101, 102)),
        arms={
            "published": arm(),
            "published_selected": arm(select_by_lml=True, lml_every=1),
            "node": arm(scheme="node"),
            "two": arm(proportions=two),
            "mixed": arm(**MIXED),
            "mixed_every_4": arm(every=4, **MIXED),
            "joint": arm(**MIXED, **JOINT),
            "mixed_every_4_released": late(every=4, **MIXED),
            "joint_released": late(**MIXED, **JOINT),
            "joint_half_released": arm(late=0.5, **MIXED, **JOINT),
            "random_joint_released": late(**JOINT),
            "random_joint_half_released": arm(late=0.5, **JOINT),
            "two_joint_released": late(proportions=two, **MIXED, **JOINT),
            "lean_joint_released": late(**LEAN, **MIXED, **JOINT),
            "lean_every_4_released": late(every=4, **LEAN, **MIXED),
            "joint_far_released": late(travel=FAR, **MIXED, **JOINT),
            "random_joint_far_released": late(travel=FAR, **JOINT),
            "held_out_every_4_far_released": late(every=4, travel=FAR, **HELD_OUT),
            "held_out_every_4_released": late(every=4, **HELD_OUT),
            "held_out_every_4_half_released": arm(every=4, late=0.5, **HELD_OUT),
            "held_out_joint_released": late(**HELD_OUT, **JOINT),
        },
        figures=("scores", "subnetworks", "accuracy", "hypers"),
    )
