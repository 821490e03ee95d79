"""`tuneparts new`: a search file to begin with."""

import re
from pathlib import Path

from tuneparts import atomic
from tuneparts.cli.output import terminal
from tuneparts.errors import ConfigError
from tuneparts.search import load

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def new(name: str) -> None:
    """Write `searches/NAME.py`, and say what to do with it.

    Raises:
        ConfigError: The name is none, or taken.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "a search is named by small letters, digits and underscores, a letter first, but got "
            f"`{name}`."
        )
    path = Path("searches") / f"{name}.py"
    if path.exists():
        raise ConfigError(f"a new search has a name of its own, but {path} is there already.")
    if name in {file.name for file in load.available()}:
        raise ConfigError(
            f"a new search has a name of its own, but tuneparts brings a search `{name}` along. "
            "Choose another."
        )
    path.parent.mkdir(exist_ok=True)
    atomic.write_text(path, TEMPLATE.replace("NAME", name))
    console = terminal()
    for line in (
        f"{path} is written: a question, and three arms to answer it. Next:",
        f"  tuneparts search {name} --dry-run        what it will cost",
        f"  tuneparts search {name} --scale smoke    does everything run?",
        f"  tuneparts search {name}                  the answer",
        "Its fields: tuneparts methods partitioned, tuneparts nets, tuneparts data digits",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


TEMPLATE = '''"""Does learning the rotation in one run beat searching for it?

The first paragraph is the question; `tuneparts searches` lists it. What else a reader should know
stands here.
"""

import math

from tuneparts import (
    Arm,
    DataConfig,
    PartitionedConfig,
    RandomSearch,
    Scale,
    Search,
    StandardConfig,
    Uniform,
)


def search(scale: Scale) -> Search:
    """Build the search at a scale: `smoke` takes seconds, `cpu` minutes, `paper` what it takes."""
    # What all arms share, so that they differ in nothing but what is asked about. A pass is one
    # forward and backward over one batch: the budget that does not depend on the machine.
    passes = scale.pick(smoke=20, cpu=1000, paper=10_000)
    shared = {
        "passes": passes,
        "interval": passes // 4,  # passes between two reports
        "net": "digits_cnn",  # of `tuneparts nets`, or one of your own: "my_package.nets:build"
        "batch_size": 50,
        "optimiser": {"lr": 0.005},
    }
    augmented = {"affine": {"kind": "lila"}, "samples": 4}
    return Search(
        name="NAME",
        question="Does learning the rotation in one run beat searching for it?",
        scale=scale,
        # A set of `tuneparts data`, folder:PATH, or a function of your own that returns arrays.
        data=DataConfig(name="digits", rotated=True, num_val=300),
        metric="val/accuracy",  # selects among the trials of an arm; never a test metric
        passes=passes,  # an arm with another budget says why in its `budget_note`
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        arms=(
            # One run, as it is; nothing is selected, so it trains on the validation data too.
            Arm(name="none", config=StandardConfig(**shared, train_on="all")),
            # Several runs of the same method; the space says what is drawn for each of them.
            Arm(
                name="random",
                config=StandardConfig(**shared, hypers=augmented),
                algorithm=RandomSearch(num_trials=scale.pick(smoke=2, cpu=4, paper=100)),
                space={"hypers.affine.rotation": Uniform(low=0.0, high=math.pi)},
            ),
            # One run that learns what the other searches for.
            Arm(
                name="partitioned",
                config=PartitionedConfig(**shared, hypers=augmented, hyper_lr=36 / passes),
            ),
        ),
        figures=("accuracy", "hypers", "samples"),
    )
'''
"""A search that runs as it is, on data that is always there."""
