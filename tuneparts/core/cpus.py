"""How many CPUs this process may use: often fewer than the machine has."""

import math
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def usable_cpus(cgroups: Path = _CGROUPS) -> int:
    """Count the CPUs that this process may use.

    A batch system pins a job to some CPUs (its affinity), and a container gets a share of their
    time (its quota); the smaller one counts, rounded up.

    Args:
        cgroups: where Linux shows the quotas of containers.

    Example:
        >>> 1 <= usable_cpus() <= os.cpu_count()
        True
    """
    if hasattr(os, "sched_getaffinity"):  # Linux
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quota = _quota(cgroups)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota(cgroups: Path) -> float | None:
    """CPUs' worth of time that the container of this process gets; None without a limit."""
    try:
        if (cgroups / "cpu.max").exists():  # version 2
            quota, period = (cgroups / "cpu.max").read_text().split()
        else:
            quota = (cgroups / "cpu/cpu.cfs_quota_us").read_text()
            period = (cgroups / "cpu/cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # no container, or "max": no limit
        return None
