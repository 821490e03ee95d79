"""Freed memory is found again without page faults."""

import subprocess
import sys

import pytest

from tuneparts.training.process import keep_freed_memory

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
