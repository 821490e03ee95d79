"""Two processes that share every batch make the run of one, within rounding."""

import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tuneparts import catalog
from tuneparts.data.config import DataConfig
from tuneparts.data.task import Task
from tuneparts.errors import ConfigError
from tuneparts.search import load
from tuneparts.search.check import check
from tuneparts.testing.learner import history
from tuneparts.training.learner import Context
from tuneparts.training.ranks import Ranks

CPU = torch.device("cpu")
SHORT = {"passes": 12, "interval": 4, "batch_size": 15}  # shares of 7 and of 8 rows
AFFINE = {"affine": {"rotation": 0.3}, "samples": 3, "temperature": {}}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "standard": ("standard", {"hypers": {"affine": {"rotation": 0.5}, "samples": 3}}),
    "batch norm": ("standard", {"net": {"name": "wide_resnet", "depth": 10, "width": 1}}),
    "partitioned": ("partitioned", {"net": "digits_cnn", "hypers": AFFINE}),
    "mixed": (
        "partitioned",
        {"hypers": AFFINE, "scheme": "node", "mixed": True, "hyper_share": 0.25},
    ),
    "released": ("released", {"hypers": AFFINE, "scheme": "node", "mixed": True}),
    "superweights": ("superweights", {"members": ["digits_cnn", "digits_cnn"]}),
    "pwfn": ("pwfn", {"net": "digits_cnn"}),
    "recomputed": ("standard", {"net": "digits_cnn", "runtime.checkpoint_segments": 2}),
}


def _task() -> Task:
    return DataConfig(name="stripes", num_train=90, num_val=30, num_test=30).load()


def _rows(case: str, ranks: Ranks | None) -> list[dict[str, float]]:
    method, changes = CASES[case]
    config = catalog.config_class(method)().replaced({**SHORT, **changes})
    return history(config.build(Context(_task(), 0, CPU, ranks=ranks)))


def _meet(rank: int, meeting: Path) -> Ranks:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    return Ranks(rank, 2)


def _follow(meeting: Path) -> None:
    """Be the second rank of all cases."""
    ranks = _meet(1, meeting)
    for case in CASES:
        _rows(case, ranks)
    os._exit(0)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Any]]:
    """The rows of every case, by two ranks; one of them is this process."""
    meeting = tmp_path_factory.mktemp("ranks") / "meeting"
    other = multiprocessing.get_context("spawn").Process(target=_follow, args=(meeting,))
    other.start()
    ranks = _meet(0, meeting)
    found = {case: _rows(case, ranks) for case in CASES}
    dist.destroy_process_group()
    other.join()
    assert other.exitcode == 0
    return found


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_make_the_run_of_one(case: str, shared: Mapping[str, list[Any]]) -> None:
    alone, together = _rows(case, None), shared[case]
    assert [row.keys() for row in alone] == [row.keys() for row in together]
    for one, other in zip(alone, together, strict=True):
        names = [n for n in one if n.startswith(("train/", "hyper/", "lml/"))]
        assert [one[n] for n in names] == pytest.approx([other[n] for n in names], rel=2e-4)


def test_shares_of_rows_cover_a_batch_once() -> None:
    for num in (3, 8, 50):
        rows = [range(num)[Ranks(rank, 3).rows(num)] for rank in range(3)]
        assert [row for share in rows for row in share] == list(range(num))


def test_a_method_that_cannot_says_so_before_it_starts() -> None:
    changes = ["validation.resources.gpus=2"]
    with pytest.raises(ConfigError, match="uses at most 1 GPU, but `validation` reserves 2"):
        load.load("random_vs_partitioned", scale="smoke", changes=changes)
    with pytest.raises(ConfigError, match="or whole ones"):
        load.load("rotated_digits", scale="smoke", changes=["none.resources.gpus=1.5"])


def test_dropout_on_several_gpus_is_refused_by_the_driver() -> None:
    changes = [
        "none.resources.gpus=2",
        'none.net={"name": "mlp"}',
        'none.hypers={"dropout": {"rate": 0.5}}',
    ]
    search = load.load("rotated_digits", scale="smoke", arms=["none"], changes=changes)
    with pytest.raises(ConfigError, match="several GPUs share a batch, and dropout"):
        check(search)
