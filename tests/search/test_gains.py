"""What a dry run says about packing."""

from typing import Any

import pytest

from tuneparts.baselines.standard import StandardConfig
from tuneparts.search import gains
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Arm, Fixed, RandomSearch


def note(net: str, packed: int, trials: int = 8) -> str:
    space: dict[str, Any] = {"optimiser.lr": Uniform(low=0.1, high=0.2)} if trials > 1 else {}
    algorithm = RandomSearch(num_trials=trials) if trials > 1 else Fixed()
    config = StandardConfig(net=net)
    return gains.gain_note(
        Arm(name="a", config=config, packed=packed, space=space, algorithm=algorithm)
    )


@pytest.mark.parametrize(
    ("net", "packed", "trials", "said"),
    [
        ("digits_cnn", 4, 8, "times as many a second for `digits_cnn`"),
        ("digits_cnn", 1, 8, "--set a.packed=8"),
        ("mnist_cnn", 4, 8, "leave `packed` out"),
        ("mnist_cnn", 1, 8, "is not packed"),
        ("resnet9", 4, 8, "has not been measured"),
    ],
)
def test_a_sentence_on_packing(net: str, packed: int, trials: int, said: str) -> None:
    assert said in note(net, packed, trials)


@pytest.mark.parametrize(("net", "trials"), [("resnet9", 8), ("digits_cnn", 2), ("mlp", 1)])
def test_nothing_is_said_where_nothing_is_known_or_gained(net: str, trials: int) -> None:
    assert note(net, 1, trials) == ""
