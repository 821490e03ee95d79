"""Sixty thousand broken inputs, for every reader of what comes from elsewhere than a run's folder.

Each is read or refused: nothing but our own errors may come out, and a refused file changes
nothing. Memory is limited, so that a number in a file cannot ask for more than a gigabyte, and no
single input may take long.
"""

import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fuzz import readers
from tuneparts.core.errors import TunepartsError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MOST_MEMORY = 1 << 30
"""Bytes that reading may take beside what the process has."""
LONGEST = 10.0
"""Seconds of CPU that one input may take, on any machine."""
CASES = {
    "changes on the command line": 8_000,
    "compressed nets": 10_000,
    "images": 7_000,
    "label files": 4_000,
    "logins": 2_000,
    "MNIST files": 4_000,
    "packed images": 4_000,
    "requests to a page": 5_000,
    "searches": 5_000,
    "stored images": 4_000,
    "tables": 4_000,
    "texts with secrets": 4_000,
    "what reports tell": 4_000,
}


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """A limit on the address space: reading must not ask for what a small file cannot need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_there_are_sixty_thousand() -> None:
    assert sum(CASES.values()) >= 60_000
    assert set(CASES) == set(readers.READERS)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, where there is one: thousands of files are written to it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.mark.parametrize("name", list(CASES))
def test_broken_input_is_read_or_refused(name: str, folder: Path) -> None:
    rng = random.Random(name)
    attempt: Callable[[random.Random], None] = readers.READERS[name](folder)
    num_refused, longest = 0, 0.0
    for number in range(CASES[name]):
        start = time.thread_time()
        state = rng.getstate()
        try:
            attempt(rng)
        except TunepartsError:
            num_refused += 1
        except BaseException as error:
            error.add_note(f"{name}, input {number}: state {hash(state)}")
            raise
        longest = max(longest, time.thread_time() - start)
    assert longest < LONGEST
    if name not in readers.NEVER_REFUSED:
        assert num_refused > CASES[name] // 20  # else the changes do not reach the reader
