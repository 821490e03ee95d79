"""Joining a cluster, waiting for its nodes, and asking whether they share the storage."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tuneparts.core.errors import ClusterError, ConfigError, PlacementError, StorageError
from tuneparts.executors.ray import cluster
from tuneparts.search.storage import Folder

pytestmark = pytest.mark.ray
ONE = [{"CPU": 1.0}]


def test_an_address_where_nobody_listens_is_named() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    refused = rf"`{address}`: no Ray cluster answers there: .* refused"
    with pytest.raises(ClusterError, match=refused), cluster.joined(address):
        pass


def test_the_address_of_the_dashboard_is_not_that_of_the_cluster() -> None:
    address = "http://127.0.0.1:8265"
    with pytest.raises(ConfigError, match="HOST:PORT"), cluster.joined(address):
        pass


@pytest.fixture
def world(monkeypatch) -> dict[str, Any]:
    """Nodes that the test can change, and the demand that an autoscaler saw."""
    found: dict[str, Any] = {"nodes": {"a": {"CPU": 4.0}}, "asked": []}

    @contextmanager
    def demanded(bundles: Any) -> Iterator[None]:
        found["asked"].append(bundles)
        yield

    monkeypatch.setattr(cluster, "LOOK", 0.01)
    monkeypatch.setattr(cluster, "nodes", lambda: found["nodes"])
    monkeypatch.setattr(cluster, "_demanded", demanded)
    monkeypatch.setattr(cluster, "_has_autoscaler", lambda: True)
    return found


def test_a_cluster_without_nodes_is_asked_and_waited_for(world, capsys, monkeypatch) -> None:
    calls = iter([{}, {}, {"a": {"CPU": 2.0}}])
    world["nodes"] = {}
    monkeypatch.setattr(cluster, "nodes", lambda: next(calls))
    cluster.await_room({"arm": ONE}, limit=60.0)
    assert world["asked"] == [ONE]
    assert "waiting 60 s at most for nodes: `" in capsys.readouterr().err


def test_nobody_waits_where_nothing_adds_nodes(world, monkeypatch) -> None:
    world["nodes"] = {"head": {"CPU": 0.0}}
    monkeypatch.setattr(cluster, "_has_autoscaler", lambda: False)
    with pytest.raises(PlacementError, match="needs CPU 1 and the cluster has CPU 0"):
        cluster.await_room({"arm": ONE}, limit=900.0)
    assert world["asked"] == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, True),
        (b"no json", True),
        (b'{"time": 1.0}', True),
        (b'{"autoscaler_report": {"node_type_mapping": {}}}', True),
        (b'{"autoscaler_report": {"node_type_mapping": {"a1": "node_a1", "b": "node_b"}}}', False),
        (b'{"autoscaler_report": {"node_type_mapping": {"10.0.0.1": "ray.head"}}}', True),
    ],
)
def test_an_autoscaler_names_types_of_nodes(monkeypatch, status, expected: bool) -> None:
    monkeypatch.setattr("ray.experimental.internal_kv._internal_kv_get", lambda _: status)
    assert cluster._has_autoscaler() is expected


def test_nodes_that_do_not_come_are_a_refusal(world) -> None:
    world["nodes"] = {"head": {"CPU": 0.0}}
    with pytest.raises(PlacementError, match="needs CPU 1 and the cluster has CPU 0"):
        cluster.await_room({"arm": ONE}, limit=0.05)
    assert world["asked"] == [ONE]
    with pytest.raises(PlacementError):
        cluster.await_room({"arm": ONE}, limit=0.0)
    assert len(world["asked"]) == 1


NODES = {"id1": "10.0.0.1", "id2": "10.0.0.2"}


def asking(places: dict[str, Path | None]):
    """As `_ask`, with nodes that see folders of their own; None for one that is silent."""

    def ask(nodes, storage, key):
        assert Folder(storage).child("probe").names() == [key]
        return {
            node: cluster._look(str(place), key)
            for node, place in places.items()
            if place is not None
        }

    return ask


@pytest.fixture
def nodes(monkeypatch) -> None:
    monkeypatch.setattr(cluster, "_other_nodes", lambda: dict(NODES))


def test_shared_storage_is_accepted_and_left_clean(nodes, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(cluster, "_ask", asking({"id1": tmp_path, "id2": None}))
    cluster._refuse_unshared(str(tmp_path))
    assert Folder(str(tmp_path)).child("probe").names() == []


def test_a_node_with_a_folder_of_its_own_is_named(nodes, monkeypatch, tmp_path) -> None:
    own = tmp_path / "own"
    monkeypatch.setattr(cluster, "_ask", asking({"id1": tmp_path, "id2": own}))
    with pytest.raises(StorageError, match=r"10\.0\.0\.2 did not find .*`--storage`"):
        cluster._refuse_unshared(str(tmp_path))
    assert Folder(str(tmp_path)).child("probe").names() == []


def test_one_node_has_nothing_to_share(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(cluster, "_other_nodes", dict)
    cluster._refuse_unshared(str(tmp_path / "untouched"))
    assert not (tmp_path / "untouched").exists()
