"""What cannot run is refused before anything of it is written."""

import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tuneparts.core import settings
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.data.config import Data
from tuneparts.hypers import Hyper
from tuneparts.methods.baselines.config import PosthocLaplace, Standard
from tuneparts.methods.ensembles.config import UniversallySlimmable
from tuneparts.methods.partitioned import Partitioned
from tuneparts.nets import Own
from tuneparts.results import running
from tuneparts.search.algorithms.base import GridSearch
from tuneparts.search.arm import Arm
from tuneparts.search.check import check
from tuneparts.search.space import Choice
from tuneparts.search.spec import Scale, Search

BUILT: list[int] = []


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path / "results"))
    BUILT.clear()
    return settings.current().results_dir


def flat(in_shape: tuple[int, ...], num_classes: int, width: int = 4) -> nn.Module:
    BUILT.append(width)
    inputs = in_shape[0] * in_shape[1] * in_shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.Linear(width, num_classes))


def wrong(in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(9, num_classes))


class Recurrent(nn.Module):
    """Its weights are of a kind that cannot be partitioned."""

    def __init__(self, in_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.body = nn.GRU(in_shape[2], num_classes, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.body(x[:, 0])[0][:, -1]


class Sums(Hyper):
    """Returns one number per example in place of logits."""

    def on_outputs(self, outputs_BK: Any, now: Any) -> Any:
        return outputs_BK.sum(1)


class FussyConfig(Standard):
    """Its learner cannot be built, for a reason of its own."""

    def build(self, context: Any) -> Any:
        raise KeyError("fussy")


def asked(config: Any, **fields: Any) -> Search:
    values: dict[str, Any] = {
        "name": "asked",
        "question": "Does it fit?",
        "scale": Scale.SMOKE,
        "data": Data(name="digits", num_train=60, num_val=20, num_test=10),
        "metric": "val/accuracy",
        "steps": 4,
        "seeds": (3,),
    }
    fields.setdefault("arms", (Arm(name="mine", config=config),))
    return Search(**values, **fields)


SHORT = {"steps": 4, "interval": 4}


def test_a_net_that_fits_is_built_and_nothing_is_written(results: Path) -> None:
    running.check(asked(Standard(**SHORT, net=Own(flat, width=5))))
    assert set(BUILT) == {5}
    assert not results.exists()


def test_a_net_is_tried_as_its_space_gives_it() -> None:
    arm = Arm(
        name="mine",
        config=Standard(**SHORT, net=flat),
        algorithm=GridSearch(),
        space={"net.width": Choice(options=(7,))},
    )
    check(asked(arm.config, arms=(arm,)))
    assert set(BUILT) == {7}


def test_data_are_read_only_for_a_net_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError("read")

    monkeypatch.setattr(Search, "load_data", refuse)
    check(asked(Standard(**SHORT)))
    with pytest.raises(AssertionError, match="read"):
        check(asked(Standard(**SHORT, net=flat)))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Standard(**SHORT, net=wrong), "raised RuntimeError"),
        (UniversallySlimmable(**SHORT, net=flat), "width"),
        (Partitioned(**SHORT, net=Recurrent, scheme="node"), "GRU"),
        (FussyConfig(**SHORT, net=flat), "KeyError: 'fussy'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Standard) else "",
)
def test_a_net_that_its_method_or_data_do_not_fit_is_refused_by_name(
    config: Any, reason: str, results: Path
) -> None:
    search = asked(config)
    net = config.net.name
    where = rf"arm `mine` cannot train `{net}` on inputs of shape \(1, 8, 8\) with 10 outputs"
    with pytest.raises(ConfigError, match=rf"{where}: .*{reason}"):
        running._create(search)
    assert not results.exists()


def test_a_hyper_that_does_not_fit_is_refused_by_name(results: Path) -> None:
    law = "arm `mine` cannot learn from `digits`: .*`sums` returned"
    with pytest.raises(ConfigError, match=law):
        running._create(asked(Standard(**SHORT, hypers={"sums": Sums()})))
    assert not results.exists()


def test_a_method_whose_library_is_missing_is_refused(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = asked(PosthocLaplace(**SHORT))
    check(search)
    monkeypatch.setitem(sys.modules, "laplace", None)
    with pytest.raises(ConfigError, match=r"needs laplace.*pip install 'tuneparts\[laplace\]'"):
        running._create(search)
    assert not results.exists()


def test_a_figure_that_cannot_be_drawn_is_refused(results: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean `sweep`"):
        running._create(asked(Standard(**SHORT), figures=("sweeps",)))
    assert not results.exists()
