"""With its own settings tuned at equal cost, which way to the hypers is best for choosing inputs?

As `benchmark_digits`, on a table: thirty inputs, of which the first fifteen know the label.
Learners learn which inputs to keep; searching arms draw how many of the first are kept.
"""

from studies.tuning import Tuned
from tuneparts.data.config import Data
from tuneparts.nets import Mlp
from tuneparts.search.space import Choice
from tuneparts.search.spec import Scale, Search

NUM_INPUTS = 30
NOTES = """
Generated as in `input_selection`, with 300 training and 150 validation examples, so that needless
inputs hurt; an MLP of two hidden layers of 64. The searching arms know the order of the inputs,
which the learners do not: the space has 30 points instead of two to the thirtieth.
"""


def mask(kept: int) -> tuple[float, ...]:
    """Keep the first inputs."""
    return (1.0,) * kept + (0.0,) * (NUM_INPUTS - kept)


def search(scale: Scale) -> Search:
    """Learners, searching arms and references, each with its tuning."""
    steps = scale.pick(smoke=16, cpu=1600, paper=20_000)
    starts = Choice(options={f"{keep:g}": {"keep": keep} for keep in (0.3, 0.5, 0.8)})
    setting = Tuned(
        shared={
            "steps": steps,
            "interval": steps // 4,
            "net": Mlp(widths=(64, 64)),
            "batch_size": 50,
            "optimiser": {"lr": 0.003},
        },
        learnt={"mask": {"keep": 0.5}},
        starts={"hypers.mask": starts},
        space={"hypers.mask.keep": Choice(options=tuple(map(mask, range(1, NUM_INPUTS + 1))))},
        packed=8,
    )
    return setting.search(
        name="benchmark_inputs",
        notes=NOTES,
        scale=scale,
        data=Data(name="input_selection", num_train=300, num_val=150, num_test=1000),
        references={"none": None, "oracle": {"mask": {"keep": mask(15)}}},
        found={"hyper/num_kept": 15.0},
    )
