"""A folder on a file system of pyarrow: whole files, plain names, no keys."""

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from tuneparts.core.errors import ConfigError, SecurityError
from tuneparts.search.storage import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "trials"))


def test_what_is_written_is_read_back_and_listed(folder: Folder, tmp_path: Path) -> None:
    assert folder.names() == []
    folder.write("b.pt", b"two")
    folder.write("a.pt", b"one")
    assert folder.names() == ["a.pt", "b.pt"]
    assert folder.read("a.pt") == b"one"
    folder.write("a.pt", b"another")
    assert folder.read("a.pt") == b"another"
    folder.delete("a.pt")
    (tmp_path / "trials" / ".c.partial").write_bytes(b"half of a file")  # of a dead process
    assert folder.names() == ["b.pt"]
    assert Folder(f"file://{tmp_path}/trials/").read("b.pt") == b"two"
    for use in (folder.read, folder.delete):
        with pytest.raises(FileNotFoundError):
            use("a.pt")


def test_children_are_folders_inside_and_not_files(folder: Folder, tmp_path: Path) -> None:
    folder.child("arm", "seed0").write("a", b"one")
    assert (tmp_path / "trials" / "arm" / "seed0" / "a").read_bytes() == b"one"
    assert folder.names() == []
    assert folder.child("arm").child("seed0").names() == ["a"]


class FullDisk:
    """A stream that takes half of what it is given."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self.stream = stream

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def write(self, content: bytes) -> None:
        self.stream.write(content[: len(content) // 2])
        raise OSError(28, "No space left on device")


def test_a_torn_write_leaves_the_old_file_and_nothing_else(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("a", b"as it was")

    class Broken:
        def __init__(self, real: pafs.FileSystem) -> None:
            self.real = real

        def open_output_stream(self, path: str) -> FullDisk:
            return FullDisk(self.real.open_output_stream(path))

        def __getattr__(self, name: str) -> object:
            return getattr(self.real, name)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "_fs", Broken(folder._fs))
        with pytest.raises(OSError, match="No space left"):
            folder.write("a", b"what does not fit")
    assert folder.read("a") == b"as it was"
    assert [path.name for path in (tmp_path / "trials").iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "a\\b", "a\nb", "a\0"])
def test_a_name_cannot_leave_its_folder(folder: Folder, name: str) -> None:
    for use in (folder.read, folder.delete, folder.child, lambda n: folder.write(n, b"")):
        with pytest.raises(SecurityError, match="one plain name"):
            use(name)


@pytest.mark.parametrize("uri", ["relative/path", "nosuchscheme://bucket/trials"])
def test_a_place_that_nobody_knows_is_refused_with_the_cure(uri: str) -> None:
    with pytest.raises(ConfigError, match="absolute path or a URI that pyarrow knows"):
        Folder(uri)


@pytest.mark.parametrize(
    "uri", ["s3://a:hunter2@b/x", "s3://b/x?secret_key=hunter2", "gs://a:hunter2@b"]
)
def test_a_key_in_a_uri_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(SecurityError, match="carries no key") as caught:
        Folder(uri)
    assert "hunter2" not in str(caught.value)


def test_a_link_in_the_place_of_a_half_written_file_is_not_followed(tmp_path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious content")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".state.partial").symlink_to(precious)
    Folder(str(tmp_path / "store")).write("state", b"1")
    assert precious.read_text() == "precious content"
    assert (tmp_path / "store" / "state").read_bytes() == b"1"
