"""Folders of files on any file system that pyarrow reaches: local, S3, GCS, HDFS."""

import errno
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow.fs as pafs

from tuneparts.core import errors
from tuneparts.core.errors import ConfigError, SecurityError, StorageError, TunepartsError
from tuneparts.core.redaction import has_password, redact
from tuneparts.search.events import TrialId
from tuneparts.training.learner import Columns, to_csv

_AWAY = ("botocore", "urllib3", "http.client", "google.api_core", "grpc", "ray.exceptions")
"""Modules whose exceptions say that a service did not answer; none of them need be installed."""


class Folder:
    """A folder of files by plain names; a file that is written is there as a whole or not."""

    def __init__(self, uri: str) -> None:
        self.uri = refuse_keys(uri).rstrip("/")
        try:
            self._fs, self._path = pafs.FileSystem.from_uri(self.uri)
        except Exception as error:  # pyarrow raises several types for a URI it does not know
            raise ConfigError(
                f"storage is an absolute path or a URI that pyarrow knows, but got `{uri}`: "
                f"{redact(str(error))}"
            ) from error

    def child(self, *names: str) -> "Folder":
        """Name a folder inside this one; it need not exist yet."""
        for depth, name in enumerate(names):
            _refuse_path(name)
            path = Path("/".join([self._path, *names[: depth + 1]]))
            if self._is_local and path.is_symlink():
                raise SecurityError(f"{path}: this is a link, and none is followed. Remove it.")
        return Folder("/".join([self.uri, *names]))

    def of_trial(self, trial: TrialId, *names: str) -> "Folder":
        return self.child(*str(trial).split("/"), *names)

    @property
    def _is_local(self) -> bool:
        return isinstance(self._fs, pafs.LocalFileSystem)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or replace it, in one step."""
        _refuse_path(name)
        self._fs.create_dir(self._path, recursive=True)
        partial = f"{self._path}/.{name}.partial"
        if self._is_local:
            Path(partial).unlink(missing_ok=True)  # a link there would be followed
        try:
            with self._fs.open_output_stream(partial) as stream:
                stream.write(content)
        except OSError:
            with suppress(OSError):  # half a file would take the space that is missing
                self._fs.delete_file(partial)
            raise
        self._fs.move(partial, f"{self._path}/{name}")

    def read(self, name: str) -> bytes:
        """Read a file; a link is not followed."""
        _refuse_path(name)
        if self._is_local and Path(self._path, name).is_symlink():
            raise FileNotFoundError(f"{self._path}/{name} is a link")
        with self._fs.open_input_stream(f"{self._path}/{name}") as stream:
            content: bytes = stream.read()
        return content

    def names(self) -> list[str]:
        """List the files here by name, links left out; none when the folder is not there."""
        selector = pafs.FileSelector(self._path, allow_not_found=True)
        found = [
            info.base_name
            for info in self._fs.get_file_info(selector)
            if info.type == pafs.FileType.File
            and not (self._is_local and Path(info.path).is_symlink())
        ]
        return sorted(name for name in found if not name.endswith(".partial"))

    def delete(self, name: str) -> None:
        _refuse_path(name)
        self._fs.delete_file(f"{self._path}/{name}")


def refuse_keys(uri: str) -> str:
    """Return the URI if it carries no password: the run's card and every worker will hold it."""
    if has_password(uri):
        raise SecurityError(
            f"a storage URI is written to the run's card, so it carries no key, but got "
            f"`{redact(uri)}`. Give keys by the environment or the role of the machine."
        )
    return uri


def _refuse_path(name: str) -> None:
    if name in {"", ".", ".."} or not name.isprintable() or {"/", "\\"} & set(name):
        raise SecurityError(f"a file is named by one plain name, but got {name!r}.")


class ArtifactStore:
    """The tables that trials left: CSV files next to their checkpoints."""

    def __init__(self, storage: Folder) -> None:
        self._storage = storage

    def put(self, trial: TrialId, tables: Mapping[str, Columns]) -> None:
        """Keep the tables of a finished trial; tables of the same name are replaced."""
        for name, columns in tables.items():
            folder = self._storage.of_trial(trial, "exhibits")
            folder.write(f"{name}.csv", to_csv(columns).encode())

    def find(self, trial: str, name: str) -> str | None:
        """Read a table as CSV text; None where the trial left none of this name."""
        folder = self._storage.of_trial(TrialId.parse(trial), "exhibits")
        return folder.read(f"{name}.csv").decode() if f"{name}.csv" in folder.names() else None


def is_transient(error: BaseException | None) -> bool:
    """Whether an exception, or what it was raised from, says that storage did not answer."""
    while error is not None and not isinstance(error, TunepartsError):
        module = f"{type(error).__module__}."
        if isinstance(error, OSError) or module.startswith(tuple(f"{name}." for name in _AWAY)):
            return True
        error = error.__cause__
    return isinstance(error, StorageError | errors.ClusterError)


def is_disk_full(error: OSError) -> bool:
    """Whether a disk or quota is full; pyarrow does not always say so in `errno`."""
    return (
        error.errno in {errno.ENOSPC, errno.EDQUOT}
        or "No space left" in str(error)
        or "quota" in str(error).lower()
    )
