import errno

import pytest

from tuneparts.errors import StorageError
from tuneparts.executors.ray.stopper import DiskFullStopper

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
    stopper = DiskFullStopper()
    assert not stopper.stop_all()
    with stopper.guard():
        raise error
    assert stopper.stop_all()
    assert not stopper("trial", {})
    assert told in str(stopper.reason)


def test_the_first_reason_stays_and_explains_what_follows() -> None:
    stopper = DiskFullStopper()
    with stopper.guard():
        raise FULL
    first = stopper.reason
    with stopper.guard():
        raise ValueError("because everything stops")
    assert stopper.reason == first


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.EACCES, "denied")])
def test_other_errors_pass(error: Exception) -> None:
    stopper = DiskFullStopper()
    with pytest.raises(type(error)), stopper.guard():
        raise error
    assert stopper.reason is None
