"""Which code made a number, who ran it, on what, and with which packages: for the card of a run."""

import functools
import getpass
import math
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import tuneparts

_PACKAGES = ("torch", "torchvision", "ray", "mlflow", "optuna", "numpy")


def commit() -> str:
    """The checkout's commit (with `-dirty` when files differ), or the installed version."""
    given = os.environ.get("TUNEPARTS_COMMIT")
    if given:
        return given
    root = Path(tuneparts.__file__).parent.parent
    if not (root / ".git").exists():
        return f"v{tuneparts.__version__}"
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return f"v{tuneparts.__version__}"
    return head + ("-dirty" if changed else "")


def user() -> str:
    """Who runs this process; empty where the system has no name for it, as in some containers."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def versions() -> dict[str, str]:
    """Python, tuneparts and the packages that numbers depend on."""
    found = {"python": platform.python_version(), "tuneparts": tuneparts.__version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """This machine in words: processor, cores, memory and system; not its name.

    Of a search on a cluster it is the machine that leads the search.
    """
    words = [cpu_model(), f"{os.cpu_count()} cores"]
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        words.append(f"{pages * size / 2**30:.0f} GiB")
    except (ValueError, OSError, AttributeError):
        pass  # not every system tells
    return ", ".join([*words, platform.system()])


def cpu_model() -> str:
    """The name of the processor, as far as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def facts() -> dict[str, Any]:
    """Packages and repository, for the card of a run."""
    return {"packages": list(packages()), "repository": repository(Path.cwd())}


@functools.cache
def packages() -> tuple[str, ...]:
    """All installed packages as `name==version`, sorted: what `pip freeze` lists."""
    found = {
        f"{name}=={one.version}"
        for one in metadata.distributions()
        if (name := one.metadata["Name"])
    }
    return tuple(sorted(found, key=str.lower))


def repository(folder: Path) -> dict[str, Any] | None:
    """The git repository that a folder lies in; None where there is none, or no git.

    Returns:
        Its name, its commit, and whether tracked files differ from that. Addresses of remotes are
        left out, for they may hold keys.
    """
    try:
        top = Path(_git(folder, "rev-parse", "--show-toplevel"))
        return {
            "name": top.name,
            "commit": _git(folder, "rev-parse", "--short=12", "HEAD"),
            "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


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
