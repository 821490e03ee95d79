"""Joins a Ray cluster, or starts one that only this machine can reach."""

import os
import socket
from pathlib import Path
from typing import Any

import tuneparts
from tuneparts import credentials
from tuneparts.errors import ClusterError, ConfigError
from tuneparts.redaction import redact

# Read by Ray when it is imported or initialised, so they are set before.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # no tables of Ray's own on the terminal
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default, without its warning
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # CSV, JSON and TensorBoard files of every trial
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C reaches us as KeyboardInterrupt
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # Ray's own snapshots: the journal is what we resume from
}

KNOCK_SECONDS = 10


def prepare(address: str | None) -> None:
    """Set what Ray reads from the environment; call it before Ray is imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    credentials.use_ray_token()
    if address is None:
        # Ray's switch for machines that form no cluster: it then listens on loopback only.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def connect(address: str | None) -> None:
    """Join the cluster at HOST:PORT, or start a local one when there is no address.

    Workers of a cluster get the driver's own code, so that it need not be in their image. A
    driver that is itself a Ray job was sent with its code, and so are its workers.

    Raises:
        ConfigError: The address is not that of a cluster's head.
        ClusterError: Nobody answers there, or not to us.
    """
    prepare(address)
    options: dict[str, Any] = {}
    if address is None:
        options["num_cpus"] = os.cpu_count() or 1
    elif "://" in address:
        raise ConfigError(
            f"a driver joins a cluster at HOST:PORT, but got `{address}`. Give the port of the "
            "head node (6379 by default), or send the search there with `tuneparts submit`."
        )
    elif "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ:
        options["runtime_env"] = {"py_modules": [str(Path(tuneparts.__file__).parent)]}
    import ray

    try:
        if address is not None:
            _knock(address)
        ray.init(address=address, log_to_driver=False, include_dashboard=False, **options)
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


def nodes() -> list[dict[str, float]]:
    """List what each living node of the cluster has: resource name -> amount."""
    import ray

    return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]
