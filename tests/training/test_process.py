"""Freed memory is found again without page faults."""

import subprocess
import sys
from typing import ClassVar

import pytest
import torch
from torch import nn

import tuneparts as tp
from tuneparts.methods.partitioned.config import PUBLISHED
from tuneparts.methods.pwfn import compress
from tuneparts.methods.superweights import fit as fit_superweights
from tuneparts.nets import ResNet18
from tuneparts.training.process import SMALL, keep_freed_memory, threads_for

FILL_OFTEN = """
import resource, sys
import torch
from tuneparts.training.process import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()


def faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16 * 2**20)  # 64 MiB, twice what glibc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


print([faults() for _ in range(24)][-1])
"""


def faults_of_last_fill(mode: str) -> int:
    command = [sys.executable, "-c", FILL_OFTEN, mode]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="page faults as Linux counts them")
def test_a_later_step_takes_no_page_faults() -> None:
    if faults_of_last_fill("default") < 32:  # 32 huge pages of 2 MiB, 16,384 small ones
        pytest.skip("an allocator that keeps freed memory by itself")
    assert faults_of_last_fill("keep") < 8


def test_it_may_be_called_twice() -> None:
    assert keep_freed_memory() == keep_freed_memory()


CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def seen(nets, in_shape, num, device=CPU) -> int:
    with threads_for(nets, in_shape, num, device):
        inside = torch.get_num_threads()
    assert torch.get_num_threads() == 3
    return inside


def test_the_bound_is_one_of_operations() -> None:
    net = nn.Linear(100, 50)  # 10,000 operations of an example
    most = SMALL // 10_000
    assert seen([net], (100,), most - 1) == 1
    assert seen([net], (100,), most) == 3
    assert seen([net, net], (100,), most // 2) == 3


def test_a_large_net_keeps_its_threads() -> None:
    assert seen([ResNet18(width=64).build((3, 32, 32), 10)], (3, 32, 32), 32) == 3


def test_tokens_are_counted_too() -> None:
    net = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 2))
    assert seen([net], (3,), 10) == 1


def test_a_net_that_cannot_be_counted_keeps_its_threads() -> None:
    class Odd(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * float(x.sum())

    assert seen([Odd(4, 2)], (4,), 10) == 3


def test_another_device_is_left_alone() -> None:
    assert seen([nn.Linear(4, 2)], (4,), 10, torch.device("meta")) == 3


def test_an_error_gives_the_threads_back() -> None:
    with pytest.raises(ZeroDivisionError), threads_for([nn.Linear(4, 2)], (4,), 10, CPU):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


class Watching(nn.Sequential):
    """Notes on how many threads it is run."""

    seen: ClassVar[list[int]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and x.device.type == "cpu" and torch.is_grad_enabled():
            Watching.seen.append(torch.get_num_threads())
        return super().forward(x)


def small() -> Watching:
    return Watching(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize("tool", ["partition", "superweights", "compress"])
def test_the_one_call_tools_train_small_nets_on_one_thread(tool: str) -> None:
    x, y = torch.randn(40, 4), torch.arange(40) % 2
    Watching.seen.clear()
    if tool == "partition":
        fields = {**PUBLISHED, "batch_size": 8}
        tp.PartitionedClassifier(small(), steps=8, method=fields).fit(x, y)
    elif tool == "superweights":
        fit_superweights(small, x, y, members=2, budget=60, steps=8, batch_size=8)
    else:
        compress(small(), (x, y), steps=12, batch_size=8)
    assert Watching.seen.count(1) >= 8  # a dry pass before may have seen what the caller set
    assert Watching.seen[-1] == 1
    assert torch.get_num_threads() == 3
