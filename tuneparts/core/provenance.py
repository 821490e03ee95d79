"""Which code made a number, who ran it, and on what: commit, versions, user and machine."""

import getpass
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

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


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
