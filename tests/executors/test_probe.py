"""Storage that nodes do not share is refused before anything runs."""

from pathlib import Path

import pytest

from tuneparts.core.errors import StorageError
from tuneparts.executors.ray import probe
from tuneparts.search.storage import Folder

NODES = {"id1": "10.0.0.1", "id2": "10.0.0.2"}


def asking(places: dict[str, Path | None]):
    """As `_ask`, with nodes that see folders of their own; None for one that is silent."""

    def ask(nodes, storage, key):
        assert Folder(storage).child("probe").names() == [key]
        return {
            node: probe._look(str(place), key)
            for node, place in places.items()
            if place is not None
        }

    return ask


@pytest.fixture
def nodes(monkeypatch) -> None:
    monkeypatch.setattr(probe, "_other_nodes", lambda: dict(NODES))


def test_shared_storage_is_accepted_and_left_clean(nodes, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(probe, "_ask", asking({"id1": tmp_path, "id2": None}))
    probe.refuse_unshared(str(tmp_path))
    assert Folder(str(tmp_path)).child("probe").names() == []


def test_a_node_with_a_folder_of_its_own_is_named(nodes, monkeypatch, tmp_path) -> None:
    own = tmp_path / "own"
    monkeypatch.setattr(probe, "_ask", asking({"id1": tmp_path, "id2": own}))
    with pytest.raises(StorageError, match=r"but 10\.0\.0\.2 did not find .*`--storage`"):
        probe.refuse_unshared(str(tmp_path))
    assert Folder(str(tmp_path)).child("probe").names() == []


def test_one_node_has_nothing_to_share(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(probe, "_other_nodes", dict)
    probe.refuse_unshared(str(tmp_path / "untouched"))
    assert not (tmp_path / "untouched").exists()
