"""A folder of files on any file system that pyarrow reaches: local, S3, GCS, HDFS."""

from contextlib import suppress
from pathlib import Path

import pyarrow.fs as pafs

from tuneparts.core.errors import ConfigError, SecurityError
from tuneparts.core.redaction import has_password, redact


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
        """Remove a file that is there."""
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
    """Raise for a name that could lead out of its folder."""
    if name in {"", ".", ".."} or not name.isprintable() or {"/", "\\"} & set(name):
        raise SecurityError(f"a file is named by one plain name, but got {name!r}.")
