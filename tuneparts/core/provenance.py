"""Which code made a number, who ran it, on what, and with which packages: for the card of a run."""

import functools
import getpass
import math
import os
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import tuneparts

_PACKAGES = ("torch", "torchvision", "ray", "mlflow", "optuna", "numpy")


def commit() -> str:
    """The checkout's commit (with `-dirty` when files differ), or the installed version."""
    if given := os.environ.get("TUNEPARTS_COMMIT"):
        return given
    root = Path(tuneparts.__file__).parent.parent
    if (root / ".git").exists() and (found := repository(root)) is not None:
        return f"{found['commit']}{'-dirty' if found['dirty'] else ''}"
    return f"v{tuneparts.__version__}"


def user() -> str:
    """Who runs this process; empty where the system has no name for it, as in some containers."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return ""


def versions() -> dict[str, str]:
    """Python, tuneparts and the packages that numbers depend on."""
    found = {"python": platform.python_version(), "tuneparts": tuneparts.__version__}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def machine() -> str:
    """This machine, which leads the search: processor, cores, memory and system; not its name."""
    words = [cpu_model(), f"{os.cpu_count()} cores"]
    with suppress(ValueError, OSError, AttributeError):  # not every system tells
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        words.append(f"{size / 2**30:.0f} GiB")
    return ", ".join([*words, platform.system()])


def cpu_model() -> str:
    """The name of the processor, as far as the system tells it."""
    with suppress(OSError):  # not Linux
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@functools.cache
def packages() -> list[str]:
    """All installed packages as `name==version`, sorted: what `pip freeze` lists."""
    named = ((one.metadata["Name"], one.version) for one in metadata.distributions())
    return sorted({f"{name}=={version}" for name, version in named if name}, key=str.lower)


def repository(folder: Path) -> dict[str, Any] | None:
    """The git repository around a folder, if any; no remotes, whose addresses may hold keys."""
    try:
        top, head, changed = (
            subprocess.check_output(
                ["git", "-C", folder, *words], text=True, timeout=10, stderr=subprocess.DEVNULL
            ).strip()
            for words in (
                ("rev-parse", "--show-toplevel"),
                ("rev-parse", "--short=12", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no"),
            )
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {"name": Path(top).name, "commit": head, "dirty": bool(changed)}


def usable_cpus(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Count the CPUs that this process may use, by its affinity and its container's quota."""
    is_linux = hasattr(os, "sched_getaffinity")
    allowed = len(os.sched_getaffinity(0)) if is_linux else os.cpu_count() or 1
    try:
        if (cgroups / "cpu.max").exists():  # version 2
            quota, period = (cgroups / "cpu.max").read_text().split()
        else:
            quota = (cgroups / "cpu/cpu.cfs_quota_us").read_text()
            period = (cgroups / "cpu/cpu.cfs_period_us").read_text()
        share = math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no container, or "max": no limit
        return allowed
    return max(1, min(allowed, share)) if int(quota) > 0 else allowed
