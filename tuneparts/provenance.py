"""Which code made a number, and who ran it: the commit, and the versions of what it stands on."""

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


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
