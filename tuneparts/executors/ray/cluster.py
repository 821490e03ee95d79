"""Joins a Ray cluster, or starts one that only its user can reach, and asks what its nodes have."""

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import tuneparts
from tuneparts.core import access
from tuneparts.core.errors import ClusterError, ConfigError, PlacementError, StorageError
from tuneparts.core.provenance import usable_cpus
from tuneparts.core.redaction import redact
from tuneparts.executors.place import Amounts, refuse_unplaceable
from tuneparts.executors.ray import _private
from tuneparts.search.storage import Folder

# Read by Ray when it is imported or initialised, so they are set before.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default, without its warning
}

KNOCK_SECONDS = 10
LOOK = 1.0
"""Seconds between two looks at the nodes of a cluster."""
_PATIENCE = 60.0
"""Seconds for all nodes to say whether they see the storage; a silent one may be leaving."""
_ALL_GPUS = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
"""A process that is used again may be given another GPU, so it has to see all of its node."""
_log = logging.getLogger("ray.tuneparts")


def prepare(address: str | None) -> None:
    """Set what Ray reads from the environment; call it before Ray is imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if address is not None:
        access.use_ray_token()


@contextmanager
def joined(address: str | None, *, cpus: float | None = None) -> Iterator[None]:
    """Be in the cluster at HOST:PORT inside the block, or in a private one that ends with it.

    Workers get the driver's own code, so that it need not be in their image. `cpus` are those of a
    private one; all that this process may use when not given.
    """
    prepare(address)
    with ExitStack() as around:
        folder = None if address is not None else around.enter_context(_private.surroundings())
        import ray

        if not ray.is_initialized():  # else it is another's, and the next line says so
            around.callback(ray.shutdown)  # before the folder goes
        if address is not None:
            _join(address)
        else:
            before = _private.wide_doors()
            _init(address="local", num_cpus=cpus or usable_cpus(), _temp_dir=str(folder))
            _private.refuse_wide(before)
        yield


def _join(address: str) -> None:
    options: dict[str, Any] = {}
    if "://" in address:
        raise ConfigError(
            f"address = {address}: a driver joins a cluster at HOST:PORT of its head node (6379 by "
            "default). Or send the search there with `tuneparts submit`."
        )
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ:
        options["runtime_env"] = {"py_modules": [str(Path(tuneparts.__file__).parent)]}
    from ray.exceptions import RayError

    try:
        _knock(address)
        _init(address=address, **options)
    except (OSError, RuntimeError, RayError) as error:
        why = redact(str(error)).strip().splitlines()[0]
        raise ClusterError(
            f"`{address}`: no Ray cluster answers there: {why}. Check it with `ray status` on its "
            "head node, and the token in the file that TUNEPARTS_RAY_TOKEN_FILE names."
        ) from error


def _init(**options: Any) -> None:
    import ray

    on_term = signal.getsignal(signal.SIGTERM)
    ray.init(log_to_driver=False, include_dashboard=False, **options)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_term)  # Ray's own leaves without putting away


def _knock(address: str) -> None:
    """Raise an OSError where nobody listens; Ray itself would try for two minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():  # Ray knows other names, such as `auto`
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


def nodes() -> dict[str, dict[str, float]]:
    """Node id -> what that living node of the cluster has: resource name -> amount."""
    import ray

    return {node["NodeID"]: dict(node["Resources"]) for node in ray.nodes() if node["Alive"]}


@contextmanager
def joined_once(address: str | None, *, cpus: float | None = None) -> Iterator[None]:
    """As `joined`, but nothing happens where this process has joined a cluster already."""
    prepare(address)
    import ray

    with nullcontext() if ray.is_initialized() else joined(address, cpus=cpus):
        yield


def _has_autoscaler() -> bool:
    """Whether something may add nodes to the cluster; true where Ray does not say.

    Without an autoscaler each node is of a type of its own, which is named after it.
    """
    from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
    from ray.experimental.internal_kv import _internal_kv_get

    try:
        report = json.loads(_internal_kv_get(DEBUG_AUTOSCALING_STATUS))["autoscaler_report"]
        types: dict[str, str] = report["node_type_mapping"]
    except (TypeError, ValueError, KeyError):  # it has only just started, or is of another version
        return True
    return not types or any(kind != f"node_{node}" for node, kind in types.items())


def await_room(needs: Mapping[str, Sequence[Amounts]], limit: float) -> None:
    """Wait so many seconds at most until every arm's trial, given by its bundles, fits the cluster.

    Tasks that wait for such places are what its autoscaler sees as demand.
    """
    end, has_asked = time.monotonic() + limit, False
    with ExitStack() as demand:
        while True:
            try:
                refuse_unplaceable(needs, list(nodes().values()))
                return
            except PlacementError as error:
                if time.monotonic() >= end or not _has_autoscaler():
                    raise
                if not has_asked:
                    has_asked = True
                    demand.enter_context(_demanded([b for trial in needs.values() for b in trial]))
                    print(f"waiting {limit:g} s at most for nodes: {error}", file=sys.stderr)
            time.sleep(LOOK)


@contextmanager
def _demanded(bundles: Sequence[Amounts]) -> Iterator[None]:
    """Have tasks that need these bundles, and do nothing, wait inside the block."""
    import ray

    task = ray.remote(lambda: None)
    waiting = [task.options(max_retries=0, **options(one)).remote() for one in bundles]
    try:
        yield
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)


def options(bundle: Amounts) -> dict[str, Any]:
    """What a task reserves, in Ray's words."""
    names = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    plain = {names[name]: amount for name, amount in bundle.items() if name in names}
    custom = {name: amount for name, amount in bundle.items() if name not in names and amount}
    gpus = {"runtime_env": _ALL_GPUS} if bundle.get("GPU") else {}
    return {"num_cpus": 0, **plain, "resources": custom, **gpus}


def _refuse_unshared(storage: str) -> None:
    """Raise if a node that could run trials does not see what is written here."""
    others = _other_nodes()
    if not others:
        return
    folder, key = Folder(storage).child("probe"), uuid.uuid4().hex
    folder.write(key, key.encode())
    try:
        said = _ask(others, storage, key)
    finally:
        folder.delete(key)
    blind = {others[node]: why for node, why in said.items() if why is not None}
    if blind:
        raise StorageError(
            f"{', '.join(sorted(blind))} did not find in {storage} what the driver wrote there: "
            f"{next(iter(blind.values()))}. Name a folder that all nodes share, or a bucket, with "
            "`--storage`."
        )


def _other_nodes() -> dict[str, str]:
    """The nodes besides this one that have something to run trials on: id -> address."""
    import ray

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
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

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
