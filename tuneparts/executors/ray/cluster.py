"""Joins a Ray cluster, or starts one that only this machine can reach."""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tuneparts
from tuneparts import credentials
from tuneparts.cpus import usable_cpus
from tuneparts.errors import ClusterError, ConfigError, PlacementError
from tuneparts.executors.placement import Amounts, refuse_unplaceable
from tuneparts.redaction import redact

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
    credentials.use_ray_token()
    if address is None:
        # Ray's switch for machines that form no cluster: it then listens on loopback only.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def connect(address: str | None, *, cpus: float | None = None) -> None:
    """Join the cluster at HOST:PORT, or start a local one when there is no address.

    Workers of a cluster get the driver's own code, so that it need not be in their image. A
    driver that is itself a Ray job was sent with its code, and so are its workers.

    Args:
        address: of the cluster's head.
        cpus: of the local one; those that this process may use when not given.

    Raises:
        ConfigError: The address is not that of a cluster's head.
        ClusterError: Nobody answers there, or not to us.
    """
    prepare(address)
    options: dict[str, Any] = {}
    if address is None:
        options["num_cpus"] = cpus or usable_cpus()
    elif "://" in address:
        raise ConfigError(
            f"a driver joins a cluster at HOST:PORT, but got `{address}`. Give the port of the "
            "head node (6379 by default), or send the search there with `tuneparts submit`."
        )
    elif "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ:
        options["runtime_env"] = {"py_modules": [str(Path(tuneparts.__file__).parent)]}
    import ray

    on_term = signal.getsignal(signal.SIGTERM)
    try:
        if address is not None:
            _knock(address)
        # `local`: without an address Ray would join any cluster that it finds on this machine.
        ray.init(
            address=address or "local", log_to_driver=False, include_dashboard=False, **options
        )
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_term)  # Ray's own leaves without putting away
    except (OSError, RuntimeError, ray.exceptions.RayError) as error:
        if address is None:
            raise
        why = redact(str(error)).strip().splitlines()[0]
        raise ClusterError(
            f"a Ray cluster answers at `{address}`, but this one did not: {why}. Check the "
            "address with `ray status` on its head node, and the token in the file that "
            "TUNEPARTS_RAY_TOKEN_FILE names."
        ) from error


def _knock(address: str) -> None:
    """Raise an OSError where nobody listens; Ray itself would try for two minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():  # Ray knows names of its own, such as `auto`
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


def nodes() -> dict[str, dict[str, float]]:
    """Node id -> what that living node of the cluster has: resource name -> amount."""
    import ray

    return {node["NodeID"]: dict(node["Resources"]) for node in ray.nodes() if node["Alive"]}


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
