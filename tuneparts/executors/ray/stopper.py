"""Stops a whole search on Ray when a disk is full, where going on would lose results."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.tune import Stopper

from tuneparts.errors import StorageError
from tuneparts.executors.worker import disk_full_message, is_disk_full


class DiskFullStopper(Stopper):  # type: ignore[misc]
    """Asked by Ray after every event; stops everything once it has a reason."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:  # noqa: ARG002
        return False

    def stop_all(self) -> bool:
        return self.reason is not None

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn a full disk into a reason to stop, instead of an exception.

        An exception inside Ray's event loop would be blamed on the trial that it was handling.
        Other exceptions pass, unless the search is stopping already and they follow from that.
        """
        try:
            yield
        except StorageError as error:
            self.reason = self.reason or str(error)
        except Exception as error:
            # Ray's own files lie on the disk too, and it wraps what it meets there.
            chain = [error, error.__cause__, error.__context__]
            if self.reason is None and not any(_says_full(one) for one in chain):
                raise
            self.reason = self.reason or disk_full_message(error)


def _says_full(error: BaseException | None) -> bool:
    return error is not None and (
        (isinstance(error, OSError) and is_disk_full(error)) or "No space left" in str(error)
    )
