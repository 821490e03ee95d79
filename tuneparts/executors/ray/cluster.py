"""Joins a Ray cluster, or starts one that only its user can reach."""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import tuneparts
from tuneparts.core import credentials
from tuneparts.core.cpus import usable_cpus
from tuneparts.core.errors import ClusterError, ConfigError, PlacementError
from tuneparts.core.redaction import redact
from tuneparts.executors.placement import Amounts, refuse_unplaceable
from tuneparts.executors.ray import private

# Read by Ray when it is imported or initialised, so they are set before.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default, without its warning
}

KNOCK_SECONDS = 10
LOOK = 1.0
"""Seconds between two looks at the nodes of a cluster."""


def prepare(address: str | None) -> None:
    """Set what Ray reads from the environment; call it before Ray is imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if address is not None:
        credentials.use_ray_token()


@contextmanager
def joined(address: str | None, *, cpus: float | None = None) -> Iterator[None]:
    """Be in the cluster at HOST:PORT inside the block, or in a private one without an address.

    A private one ends with the block (see `private`).

    Workers of a cluster get the driver's own code, so that it need not be in their image. A
    driver that is itself a Ray job was sent with its code, and so are its workers.

    Args:
        address: of the cluster's head.
        cpus: of the local one; those that this process may use when not given.

    Raises:
        ConfigError: The address is not that of a cluster's head.
        ClusterError: Nobody answers there, or not to us.
        SecurityError: The private one would be reached from other machines.
    """
    prepare(address)
    with ExitStack() as around:
        folder = None if address is not None else around.enter_context(private.surroundings())
        import ray

        if not ray.is_initialized():  # else it is another's, and the next line says so
            around.callback(ray.shutdown)  # before the folder goes
        if address is not None:
            _join(address)
        else:
            before = private.wide_doors()
            _init(address="local", num_cpus=cpus or usable_cpus(), _temp_dir=str(folder))
            private.refuse_wide(before)
        yield


def _join(address: str) -> None:
    options: dict[str, Any] = {}
    if "://" in address:
        raise ConfigError(
            f"a driver joins a cluster at HOST:PORT, but got `{address}`. Give the port of the "
            "head node (6379 by default), or send the search there with `tuneparts submit`."
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
            f"a search joins a Ray cluster that answers, but none does at `{address}`: {why}. "
            "Check the address with `ray status` on its head node, and the token in the file that "
            "TUNEPARTS_RAY_TOKEN_FILE names."
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
    if host and port.isdecimal():  # Ray knows names of its own, such as `auto`
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


def nodes() -> dict[str, dict[str, float]]:
    """Node id -> what that living node of the cluster has: resource name -> amount."""
    import ray

    return {node["NodeID"]: dict(node["Resources"]) for node in ray.nodes() if node["Alive"]}


def nodes_at(address: str) -> list[dict[str, float]]:
    """List what each node of a cluster has; it is joined for that, unless this process has."""
    with joined_once(address):
        return list(nodes().values())


@contextmanager
def joined_once(address: str | None, *, cpus: float | None = None) -> Iterator[None]:
    """As `joined`, but nothing happens where this process has joined a cluster already."""
    prepare(address)
    import ray

    with nullcontext() if ray.is_initialized() else joined(address, cpus=cpus):
        yield


def request(trials: Sequence[Sequence[Amounts]]) -> None:
    """Ask the cluster's autoscaler, if it has one, for nodes that hold all these trials at once.

    The request stands until the next one. It replaces those of other drivers.

    Args:
        trials: bundles of each trial.
    """
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[dict(bundle) for trial in trials for bundle in trial])


def has_autoscaler() -> bool:
    """Whether something may add nodes to the cluster; true where Ray does not say.

    Every head node has a monitor. One that was given no description of nodes only mirrors those
    that are there: each is of a type of its own, which is named after it.
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
    """Wait until every arm's trial fits the cluster; its autoscaler is asked for nodes.

    Args:
        needs: arm -> bundles of its trials.
        limit: seconds to wait.

    Raises:
        PlacementError: They do not fit in time, or at once where nothing can be added.
    """
    end = time.monotonic() + limit
    has_asked = False
    while True:
        try:
            refuse_unplaceable(needs, list(nodes().values()))
            return
        except PlacementError as error:
            if time.monotonic() >= end or not has_autoscaler():
                raise
            if not has_asked:
                has_asked = True
                request(list(needs.values()))
                print(f"waiting {limit:g} s at most for nodes: {error}", file=sys.stderr)
        time.sleep(LOOK)
