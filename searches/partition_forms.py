"""Which form of partitioned training gives the best net at the same steps, on rotated digits?

The published form updates one partition a step and spends every other step on the hypers. The arms
change one thing after the other: hidden units instead of single weights, all partitions in each
step, fewer steps for hypers, weights and hypers in one step, and a last stage of ordinary
training.
"""

from studies.comparison import Comparison
from studies.forms import FAR, HELD_OUT, JOINT, LEAN, MIXED, Forms
from tuneparts.data.config import Data
from tuneparts.nets import DigitsCnn
from tuneparts.search.spec import Scale, Search

NOTES = """
Mlodozeniec et al. (2023) deal out single weights, update one partition in each step and take a
hyper step after each; the other forms are ours, but for the node scheme and mixed batches (their
appendix C). Data, net, rates and steps are those of `random_vs_partitioned`, and the hyper rate
times hyper steps is 18, and 36 in arms called `far`. For choosing among forms: every arm trains on
997 digits and is compared by 300 validation digits. Every replicate draws the data
anew. The arms `held_out_...` are validation-set optimisation, as a special case
of the same learner: all weights in the first partition, a fifth of the data held out, and given
back in the last stage.
"""


def search(scale: Scale) -> Search:
    """Forms of partitioned training and of its rival, all at the same steps."""
    steps = scale.pick(smoke=40, cpu=2400, paper=20_000)
    comparison = Comparison(
        shared={
            "steps": steps,
            "interval": steps // 4,
            "net": DigitsCnn(),
            "batch_size": 50,
            "optimiser": {"lr": 0.006},
        },
        samples={"samples": scale.pick(smoke=2, cpu=4, paper=20), "eval_samples": 8},
    )
    forms = Forms(comparison, train_on="train")
    return Search(
        name="partition_forms",
        question="Which form of partitioned training gives the best net at the same steps?",
        notes=NOTES,
        scale=scale,
        data=Data(name="digits", rotated=True, num_val=300),
        metric="val/accuracy",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(100, 101, 102, 103, 104), paper=(100, 101, 102)),
        arms=(
            forms.arm("published"),
            forms.arm("published_selected", select_by_lml=True, lml_every=1),
            forms.arm("node", scheme="node"),
            forms.arm("two", proportions=(0.8, 0.2)),
            forms.arm("mixed", **MIXED),
            forms.arm("mixed_every_4", every=4, **MIXED),
            forms.arm("joint", **MIXED, **JOINT),
            forms.arm("mixed_every_4_released", every=4, late=0.25, **MIXED),
            forms.arm("joint_released", late=0.25, **MIXED, **JOINT),
            forms.arm("joint_half_released", late=0.5, **MIXED, **JOINT),
            forms.arm("random_joint_released", late=0.25, **JOINT),
            forms.arm("random_joint_half_released", late=0.5, **JOINT),
            forms.arm("two_joint_released", late=0.25, proportions=(0.8, 0.2), **MIXED, **JOINT),
            forms.arm("lean_joint_released", late=0.25, **LEAN, **MIXED, **JOINT),
            forms.arm("lean_every_4_released", every=4, late=0.25, **LEAN, **MIXED),
            forms.arm("joint_far_released", late=0.25, travel=FAR, **MIXED, **JOINT),
            forms.arm("random_joint_far_released", late=0.25, travel=FAR, **JOINT),
            forms.arm("held_out_every_4_far_released", every=4, late=0.25, travel=FAR, **HELD_OUT),
            forms.arm("held_out_every_4_released", every=4, late=0.25, **HELD_OUT),
            forms.arm("held_out_every_4_half_released", every=4, late=0.5, **HELD_OUT),
            forms.arm("held_out_joint_released", late=0.25, **HELD_OUT, **JOINT),
        ),
        figures=("scores", "subnetworks", "accuracy", "hypers"),
    )
