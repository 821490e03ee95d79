"""What a number stands on besides our own code: installed packages, and the user's repository."""

import functools
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any


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
