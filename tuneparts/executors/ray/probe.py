"""Whether all nodes share the storage of a run: the driver writes, and every other node reads."""

import logging
import uuid
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tuneparts.core.errors import StorageError
from tuneparts.search.storage import Folder

_PATIENCE = 60.0
"""Seconds for all nodes to answer; a node that is silent may be about to leave."""
_log = logging.getLogger("ray.tuneparts")


def refuse_unshared(storage: str) -> None:
    """Raise if a node that could run trials does not see what is written here.

    A trial that goes on there would find no checkpoint: it would begin anew, or fail.

    Raises:
        StorageError: Names the nodes, and what they met.
    """
    others = _other_nodes()
    if not others:
        return
    folder, key = Folder(storage).child("probe"), uuid.uuid4().hex
    folder.write(key, key.encode())
    try:
        said = _ask(others, storage, key)
    finally:
        folder.delete(key)
    refuse(storage, {others[node]: why for node, why in said.items() if why is not None})


def refuse(storage: str, blind: Mapping[str, str]) -> None:
    """Raise if there are nodes that do not see the storage.

    Args:
        storage: path or URI.
        blind: address of each such node -> what it met.

    Example:
        >>> refuse("/tmp/trials", {"10.0.0.2": "no such file"})
        Traceback (most recent call last):
        tuneparts.core.errors.StorageError: all nodes read what trials write, ...
    """
    if blind:
        first = next(iter(blind.values()))
        raise StorageError(
            f"all nodes read what trials write, but {', '.join(sorted(blind))} did not find in "
            f"{storage} what the driver wrote there: {first}. Name a folder that all nodes share, "
            "or a bucket, with `--storage`."
        )


def _other_nodes() -> dict[str, str]:
    """The nodes besides this one that have something to run trials on: id -> address."""
    here = ray.get_runtime_context().get_node_id()
    return {
        node["NodeID"]: node["NodeManagerAddress"]
        for node in ray.nodes()
        if node["Alive"]
        and node["NodeID"] != here
        and (node["Resources"].get("CPU") or node["Resources"].get("GPU"))
    }


def _ask(nodes: Mapping[str, str], storage: str, key: str) -> dict[str, str | None]:
    """Let each node read; returns what those that answered met, None where all is well."""
    look = ray.remote(_look)
    asked: dict[Any, str] = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        options = look.options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        asked[options.remote(storage, key)] = node
    ready, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_PATIENCE)
    for reference in silent:
        _log.warning("node %s did not say whether it sees %s", nodes[asked[reference]], storage)
        ray.cancel(reference, force=True)
    said: dict[str, str | None] = {}
    for reference in ready:
        try:
            said[asked[reference]] = ray.get(reference)
        except RayError as error:  # the node has just left
            _log.warning("node %s could not be asked: %s", nodes[asked[reference]], error)
    return said


def _look(storage: str, key: str) -> str | None:
    """On a node: read what the driver wrote; returns what went wrong."""
    try:
        found = Folder(storage).child("probe").read(key)
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return None if found == key.encode() else "another file of that name"
