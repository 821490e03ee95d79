import errno

import pytest

from tuneparts.errors import StorageError
from tuneparts.search.halt import Halt, is_full

FULL = OSError(errno.ENOSPC, "No space left on device")


def wrapped() -> RuntimeError:
    error = RuntimeError("Ray failed")
    error.__cause__ = FULL
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FULL, "No space left"),
        (wrapped(), "Ray failed"),
        (RuntimeError("x: No space left on device"), "No space left"),
        (StorageError("why"), "why"),
    ],
)
def test_a_full_disk_is_a_reason_to_stop_all(error: Exception, told: str) -> None:
    halt = Halt()
    assert not halt.stop_all()
    with halt.guard():
        raise error
    assert halt.stop_all()
    assert not halt("trial", {})
    assert told in str(halt.reason)


def test_the_first_reason_stays_and_explains_what_follows() -> None:
    halt = Halt()
    with halt.guard():
        raise FULL
    first = halt.reason
    with halt.guard():
        raise ValueError("because everything stops")
    assert halt.reason == first


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.EACCES, "denied")])
def test_other_errors_pass(error: Exception) -> None:
    halt = Halt()
    with pytest.raises(type(error)), halt.guard():
        raise error
    assert halt.reason is None


def test_full_is_told_from_other_troubles() -> None:
    assert is_full(FULL)
    assert is_full(OSError("Error writing bytes. Detail: [errno 28] No space left on device"))
    assert is_full(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert not is_full(OSError(errno.EIO, "broken"))
