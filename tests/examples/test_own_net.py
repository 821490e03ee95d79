"""A net of one's own, under every method that takes a net."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.executors import Place, execute
from tuneparts.methods import catalog
from tuneparts.search import load
from tuneparts.search.code import _importable
from tuneparts.search.journal import records
from tuneparts.training.learner import Context

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_net.py"
NARROWED = {"slimmable", "universally_slimmable"}
"""Methods that choose the width of a net themselves."""
NEEDED: dict[str, dict[str, Any]] = {
    "hne": {"levels": 1},
    "partitioned": {"parameter_proportions": (0.6, 0.2, 0.2)},
}
"""The net has two layers with weights, and six units between them."""


@pytest.mark.parametrize("workers", [1, 2])
def test_the_example_runs(tmp_path, workers: int) -> None:
    search = load.load(str(EXAMPLE), scale="smoke")
    execute(search, folder=tmp_path, place=Place("local", workers=workers))
    found = records(tmp_path / "journal.jsonl")
    assert [record.end and record.end.outcome for record in found.values()] == ["finished"] * 4
    nets = [record.config["net"] for trial, record in found.items() if trial.arm == "widths"]
    widths = [{"name": "own_net:small_net", "width": width} for width in (2, 8, 32)]
    assert sorted(nets, key=lambda net: net["width"]) == widths


def test_the_command_line_changes_an_argument_and_refuses_an_unknown_one() -> None:
    search = load.load(str(EXAMPLE), scale="smoke", changes=["partitioned.net.width=4"])
    assert search.arm("partitioned").config.net.arguments == {"width": 4}
    with pytest.raises(ConfigError, match="unexpected keyword argument 'widht'"):
        load.load(str(EXAMPLE), scale="smoke", changes=["partitioned.net.widht=4"])


WITH_NET = [
    name for name in catalog.METHODS.known if "net" in catalog.config_class(name).model_fields
]


@pytest.mark.parametrize("method", WITH_NET)
def test_every_method_that_takes_a_net_takes_one_of_ones_own(method: str) -> None:
    task = Data(name="stripes", num_train=60, num_val=20, num_test=20).load()
    changes: dict[str, Any] = {"steps": 8, "interval": 8, "batch_size": 8}
    net = {"name": "own_net:small_net", "width": 6}
    with _importable(EXAMPLE.parent):
        config = catalog.config_class(method)().replaced(
            {**changes, **NEEDED.get(method, {}), "net": net}
        )
        context = Context(task=task, seed=0, device=torch.device("cpu"))
        if method in NARROWED:
            with pytest.raises(ConfigError, match="own_net:small_net"):
                config.build(context)
            return
        assert config.build(context).advance()["train/loss"] > 0
