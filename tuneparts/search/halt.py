"""Stops all of a search when going on would lose something, such as on a full disk."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.tune import Stopper

from tuneparts.errors import StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT}


class Halt(Stopper):  # type: ignore[misc]
    """Asked by Ray after every event; stops everything once there is a reason."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:  # noqa: ARG002
        return False

    def stop_all(self) -> bool:
        return self.reason is not None

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Take a full disk as a reason: inside its event loop Ray would blame a trial for it.

        Ray's own files lie on the disk too, and it wraps what it meets there in other errors.
        """
        try:
            yield
        except StorageError as error:
            self.reason = str(error)
        except Exception as error:
            chain = [error, error.__cause__, error.__context__]
            if self.reason is None and not any(_is_full(one) for one in chain):
                raise
            self.reason = self.reason or full(error)


def full(error: object) -> str:
    """What to tell the user of a full disk."""
    return (
        f"results and checkpoints need space, but: {error}. Make space, then run "
        "`tuneparts resume`; nothing is lost."
    )


def _is_full(error: BaseException | None) -> bool:
    return error is not None and (
        (isinstance(error, OSError) and is_full(error)) or "No space left" in str(error)
    )


def is_full(error: OSError) -> bool:
    """Whether a disk or quota is full; pyarrow does not always say so in `errno`."""
    return error.errno in _FULL or "No space left" in str(error) or "quota" in str(error).lower()
