"""The code that a search brings along: its file, and the modules next to it that it imports.

Every run keeps a copy in its folder `code`. Workers import from it, or from one sent to them.
"""

import ast
import atexit
import functools
import hashlib
import importlib
import io
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tuneparts
from tuneparts.core import atomic, import_path
from tuneparts.core.errors import ConfigError, StorageError

if TYPE_CHECKING:  # brings torch, and a listing of searches does not need it
    from pydantic import BaseModel

    from tuneparts.search.spec import Search

LITTER = ("__pycache__", "*.pyc", ".*")
"""What is never copied along with code."""
MOST_BYTES = 10_000_000
"""How large the code of a search may be: it is sent to every worker."""
_TURN = threading.Lock()
"""Held by the thread that goes in next, so that none waits for ever."""
_CHANGED = threading.Condition(threading.RLock())
"""Guards what follows, `sys.path` and `sys.modules`; notified when a folder is not in use more."""
_IMPORTED: dict[str, Path] = {}
"""Modules in `sys.modules` that were imported from the folder of a search -> that folder."""


@dataclass
class _Use:
    """A folder that threads import from."""

    folder: Path
    names: frozenset[str]
    """Of the modules and packages in it."""
    known: set[str]
    """Modules that were there before, or are noted in `_IMPORTED`."""
    count: int = 0
    """Threads that are inside; one that is inside twice counts twice."""


_USES: dict[str, _Use] = {}
"""What folders hold -> the one of them that is in use."""
_INSIDE = threading.local()
"""`depth`: how often this thread is inside of `_importable`."""


@contextmanager
def _importable(folder: Path, *, content: str = "", afresh: bool = False) -> Iterator[None]:
    """Put a folder on the import path; with `afresh` as if nothing had been imported from it.

    Threads that import the same `content`, or modules of different names, go on side by side;
    others wait. What was imported from a folder that is not in use is forgotten.
    """
    folder = folder.resolve()
    content = content or str(folder)
    modules = (path for path in folder.glob("*") if path.suffix == ".py" or path.is_dir())
    names = frozenset(path.stem for path in modules if not any(map(path.match, LITTER)))
    depth = getattr(_INSIDE, "depth", 0)

    def is_free() -> bool:
        if afresh and content in _USES:
            return False
        return not any(names & use.names for other, use in _USES.items() if other != content)

    # A thread that is inside does not wait, lest two threads wait for each other.
    with nullcontext() if depth else _TURN, _CHANGED:
        if not depth:
            _CHANGED.wait_for(is_free)
        kept = {use.folder for use in _USES.values() if not names & use.names}
        if not afresh:
            kept.add(_USES[content].folder if content in _USES else folder)
        for name in [name for name, home in _IMPORTED.items() if home not in kept]:
            del _IMPORTED[name]
            sys.modules.pop(name, None)
        if content not in _USES:
            _USES[content] = _Use(folder, names, set(sys.modules))
            sys.path = [str(folder), *sys.path]  # a new list: other threads iterate the old one
            importlib.invalidate_caches()
        use = _USES[content]
        use.count += 1
        _INSIDE.depth = depth + 1
    try:
        yield
    finally:
        with _CHANGED:
            _INSIDE.depth = depth
            for name in set(sys.modules) - use.known:
                use.known.add(name)
                # Another thread may have taken it out since: an import that failed does.
                file = Path(getattr(sys.modules.get(name), "__file__", None) or "/").resolve()
                # It lies in the folder itself, not in an environment inside of it.
                top = use.folder / name.partition(".")[0]
                if file.is_relative_to(top) or file.parent / file.name.partition(".")[0] == top:
                    _IMPORTED[name] = use.folder
            use.count -= 1
            if not use.count:
                paths = list(sys.path)
                paths.remove(str(use.folder))
                sys.path = paths
                del _USES[content]
                _CHANGED.notify_all()


@dataclass(frozen=True)
class Code:
    """The code of a run, as it is sent to workers; nothing for a search that brings none."""

    folder: str = ""
    """Where it lies on the driver's machine."""
    archive: bytes = b""
    """A zip file of it, for workers that do not see that folder."""

    @classmethod
    def of(cls, folder: Path) -> "Code":
        if not folder.is_dir():
            return cls()
        for path in (folder, *folder.rglob("*")):
            atomic.inside(folder.parent, path)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            for path in _files(folder):
                # The time is left out, so that the same code has the same digest.
                file.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), path.read_bytes())
        return cls(str(folder.resolve()), buffer.getvalue())

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with the code; empty where there is none."""
        return hashlib.sha256(self.archive).hexdigest()[:12] if self.archive else ""

    @contextmanager
    def importable(self) -> Iterator[None]:
        """Let this process import it meanwhile."""
        if not self.archive:
            yield
            return
        here = Path(self.folder)
        with _importable(here if here.is_dir() else _unpacked(self.archive), content=self.digest):
            yield


@functools.cache
def _unpacked(archive: bytes) -> Path:
    """A folder with the code, for a machine that does not see that of the driver."""
    goal = Path(tempfile.mkdtemp(prefix="tuneparts-code-"))
    atexit.register(shutil.rmtree, goal, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        file.extractall(goal)
    return goal


def keep(search: "Search", folder: Path) -> Code:
    """Copy the code that a search brings along into a folder, unless it is there already."""
    if folder.exists():
        return Code.of(folder)
    sources = _sources(search)
    if not sources:
        return Code()
    size = sum(file.stat().st_size for path in sources for file in _files(path))
    if size > MOST_BYTES:
        raise ConfigError(
            f"{', '.join(map(str, sources))}: {size:,} bytes, but the code of a search is sent to "
            f"every worker and has at most {MOST_BYTES:,}. Move data out, or install packages."
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # All or nothing: a folder that is there is taken to be whole.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="code-") as name:
            half = Path(name) / "code"
            half.mkdir()
            copy(sources, half)
            half.rename(folder)
    except OSError as error:
        raise StorageError(f"the code of a search is kept in {folder}, but: {error}") from error
    return Code.of(folder)


def add(parts: Iterable["BaseModel"], folder: Path) -> None:
    """Copy what new arms of a search bring along into the folder of a run."""
    for source in dict.fromkeys(path for part in parts for path in _sources(part)):
        for file in _files(source):
            goal = folder / file.relative_to(source.parent)
            if not goal.exists():
                atomic.write_bytes(goal, file.read_bytes())
            elif goal.read_bytes() != file.read_bytes():
                raise ConfigError(
                    f"trials of a run share their code, but {file} is not what the run began with. "
                    "Bring the file back, and put new arms into one of another name."
                )


def copy(paths: Iterable[Path], folder: Path) -> None:
    """Copy files and package folders into a folder, side by side, with modes by this umask."""
    for path in paths:
        for file in _files(path):
            goal = folder / file.relative_to(path.parent)
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, goal)


def neighbours(path: Path) -> list[Path]:
    """Files and folders next to a search file that it imports, by its text; nothing is run."""
    found: dict[str, Path] = {}
    unread = [file for file in _files(path) if file.suffix == ".py"]
    while unread:
        names: list[str] = []
        for node in ast.walk(ast.parse(unread.pop().read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.append(node.module)
        for name in {name.partition(".")[0] for name in names} - set(found):
            module, package = path.parent / f"{name}.py", path.parent / name
            if package.is_dir() and package != path:
                found[name] = package
                unread += package.rglob("*.py")
            elif module.is_file() and module != path:
                found[name] = module
                unread.append(module)
    return [found[name] for name in sorted(found)]


def _sources(part: "BaseModel") -> list[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    homes = [Path(sysconfig.get_path(name)).resolve() for name in names]
    beside = Path(tuneparts.__file__).resolve().parent.parent
    found: dict[Path, None] = {}
    for path in re.findall(f'"({import_path.PATTERN.pattern})"', part.model_dump_json()):
        module = import_path.loaded(path.partition(":")[0].partition(".")[0])
        place = [*getattr(module, "__path__", []), getattr(module, "__file__", None)][0]
        source = Path(place or beside).resolve()
        is_installed = any(source.is_relative_to(home) for home in homes)
        if place and not is_installed and source.parent != beside:
            found |= dict.fromkeys([source, *neighbours(source)])
    return list(found)


def _files(path: Path) -> list[Path]:
    """All files of a package that are copied, also behind links, or the one file."""
    found, ignore = [path], shutil.ignore_patterns(*LITTER)
    for here, folders, files in os.walk(path, followlinks=True):
        skipped = ignore(here, [*folders, *files])
        folders[:] = [name for name in folders if name not in skipped]
        found += [Path(here) / name for name in files if name not in skipped]
    return sorted(file for file in found if file.is_file())
