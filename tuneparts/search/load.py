"""From a search file's name to a resolved, validated `Search`."""

import ast
import importlib.machinery
import importlib.util
import inspect
import json
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

import tuneparts
from tuneparts.core.config import parse, sentence
from tuneparts.core.errors import ConfigError, TunepartsError, UnknownNameError
from tuneparts.search import code

if TYPE_CHECKING:  # a listing can do without
    from tuneparts.search.spec import Search

_SCALES = ("smoke", "cpu", "paper")
_PARTS = {"algorithm", "resources", "at_once", "max_failures", "packed"}
"""Parts of an arm, beside its config, that can be changed on the command line."""
_WHOLE = ("stop", "runtime")
"""Parts of a search that can be changed for all arms at once."""


def folders() -> list[Path]:
    """List the folders with search files: `searches` here, then beside or inside the package."""
    package = Path(tuneparts.__file__).parent
    places = [Path("searches"), package.parent / "searches", package / "_searches"]
    return [place for place in places if place.is_dir()]


def available() -> dict[str, Path]:
    """Name -> path of all search files; of two with one name the first folder's."""
    found: dict[str, Path] = {}
    for folder in folders():
        for path in sorted(folder.glob("*.py")):
            if not path.stem.startswith("_") and path.is_file():
                found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def find(name: str) -> Path:
    """Find the file of a search by its name or path."""
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise ConfigError(f"{name}: there is none; a path must lead to a search file.")
        return Path(name)
    known = available()
    if name not in known:
        raise UnknownNameError("search", name, known)
    hidden = [place / f"{name}.py" for place in folders() if (place / f"{name}.py").is_file()]
    if any(not other.samefile(known[name]) for other in hidden):
        print(
            f"`{name}` is {known[name].absolute()}, which hides the search of that name that "
            "tuneparts brings along. Give a path to choose.",
            file=sys.stderr,
        )
    return known[name]


def load(
    name: str,
    *,
    scale: str = "cpu",
    trials: int | None = None,
    seeds: Sequence[int] | None = None,
    arms: Sequence[str] | None = None,
    changes: Iterable[str] = (),
) -> Any:
    """Load a search file by its name or path, and apply what was changed on the command line.

    Modules and packages that lie beside the file can be imported while it is loaded. A file that
    defines `check(search)` is asked last, and raises a ConfigError for a change that would not ask
    its question any more. `trials` are those of each searching arm, `seeds` those of every arm, and
    `arms` bring along those that they follow. A change reads `ARM.FIELD=VALUE`, with `data`, `stop`
    or `runtime` in place of the arm; or `NAME=VALUE` for a keyword of `search(scale, *, name=...)`.

    Example:
        >>> search = load("rotated_digits", scale="smoke", changes=["none.optimiser.lr=0.5"])
        >>> search.arm("none").config.optimiser.lr
        0.5
    """
    path = check(name, scale=scale, trials=trials, changes=(changes := list(changes)))
    from tuneparts.search import spec
    from tuneparts.search.spec import Scale, Search

    with code._importable(path.resolve().parent, afresh=True):
        with _by_line(path):
            module = _module(path)
        keywords = _keywords(module.search, changes)
        named = spec.of_file.set((_name_of(path), question(path), Scale(scale)))
        try:
            with _by_line(path):
                search = module.search(Scale(scale), **keywords)
        finally:
            spec.of_file.reset(named)
        if not isinstance(search, Search):
            raise ConfigError(f"`search(scale)` of {path} returned {type(search)}, not a Search.")
        changes = [one for one in changes if one.partition("=")[0] not in keywords]
        if arms is not None or seeds is not None or trials is not None or changes:
            search = _changed(search, trials=trials, seeds=seeds, arms=arms, changes=changes)
        getattr(module, "check", lambda _: None)(search)
        return search


def check(
    name: str, *, scale: str = "cpu", trials: int | None = None, changes: Sequence[str] = ()
) -> Path:
    """Refuse what can be seen to be wrong without running the file, and return its path."""
    path = find(name)
    if scale not in _SCALES:
        raise UnknownNameError("scale", scale, _SCALES)
    if trials is not None and trials < 1:
        raise ConfigError(f"an arm that searches runs at least one trial, but got `{trials}`.")
    for change in changes:
        if not change.partition("=")[0].isidentifier():  # else a keyword of the file, perhaps
            parse_change(change)
    with _by_line(path):
        ast.parse(path.read_bytes(), filename=str(path))
    return path


@contextmanager
def _by_line(path: Path) -> Iterator[None]:
    """Raise a ConfigError with file and line for any error of a search file or a neighbour."""
    try:
        yield
    except SyntaxError as error:
        where = f"{_shown(Path(error.filename or path))} line {error.lineno}"
        raise ConfigError(f"{where}: this is not Python: {error.msg}.") from error
    except Exception as error:
        where, folder = _shown(path), path.resolve().parent
        for frame in traceback.extract_tb(error.__traceback__):
            parts = Path(frame.filename).parts[len(folder.parts) :]
            # An environment below the same folder is not beside the search file.
            is_beside = not {"site-packages", "tuneparts"} & set(parts)
            if is_beside and Path(frame.filename).is_relative_to(folder):
                where = f"{_shown(Path(frame.filename))} line {frame.lineno}"
        what = sentence(error) if isinstance(error, ValidationError) else str(error)
        if not isinstance(error, ValidationError | TunepartsError):
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
        if isinstance(error, NameError) and error.name in tuneparts.__all__:
            what += f". Add `from tuneparts import {error.name}`."
        raise ConfigError(f"{where}: {what}") from error


def _name_of(path: Path) -> str:
    """The name of a search in a file that does not say one."""
    name = re.sub(r"[^a-z0-9_]+", "_", path.stem.lower())
    return name if name[:1].isalpha() else f"search_{name}"


def _shown(file: Path) -> str:
    """A path as short as it can be typed here."""
    absolute = file.absolute()
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else file)


def _keywords(function: Callable[..., Any], changes: Sequence[str]) -> dict[str, Any]:
    """What changes without a dot say for the keywords of a search file's function."""
    taken = inspect.signature(function).parameters.values()
    known = [one.name for one in taken if one.kind is inspect.Parameter.KEYWORD_ONLY]
    pairs = (change.partition("=")[::2] for change in changes if known and "=" in change)
    found = {name: _value(text) for name, text in pairs if "." not in name}
    for name in found.keys() - set(known):
        raise UnknownNameError("keyword of the search", name, known)
    return found


def _changed(
    search: "Search",
    *,
    trials: int | None,
    seeds: Sequence[int] | None,
    arms: Sequence[str] | None,
    changes: Sequence[str],
) -> "Search":
    """A search with what was changed on the command line."""
    tree = search.model_dump(mode="json")
    if arms is not None:
        sources, names = {arm.name: arm.source for arm in search.arms}, list(arms)
        for name in names:
            if name not in sources:
                raise UnknownNameError("arm", name, sources)
            names += filter(None, [sources[name]])  # and the arms that they take over from
        tree["arms"] = [arm for arm in tree["arms"] if arm["name"] in names]
        if not set(tree["compare"]) <= set(names):  # the contrast of an arm that was left out
            del tree["compare"], tree["answer"]
        tree["references"] = [name for name in tree["references"] if name in names]
    if seeds is not None:
        tree["seeds"] = list(seeds)
        for arm in tree["arms"]:
            arm["seeds"] = None
    if trials is not None:
        for arm in tree["arms"]:
            algorithm = search.arm(arm["name"]).algorithm.with_trials(trials)
            arm["algorithm"] = algorithm.model_dump(mode="json")
    for change in changes:
        _apply(tree, *parse_change(change))
    return parse(type(search), tree)


def _apply(tree: dict[str, Any], owner: str, path: str, value: Any) -> None:
    arms = {arm["name"]: arm for arm in tree["arms"]}
    owners = {name: arm["config"] for name, arm in arms.items()}
    if tree["data"] is not None:
        owners.setdefault("data", tree["data"])
    if owner in _WHOLE and owner not in arms:
        owners[owner] = tree[owner] = tree.get(owner) or {}
    if owner not in owners:
        raise UnknownNameError("arm", owner, [*owners, *_WHOLE])
    node, (*parents, leaf) = owners[owner], path.split(".")
    head = path.partition(".")[0]
    if owner in arms and head in _PARTS and head not in node:
        node = arms[owner]
    for parent in parents:
        if not isinstance(node.get(parent), dict):
            node[parent] = {}
        node = node[parent]
    node[leaf] = value
    if path == "steps" and owner in arms and not arms[owner]["budget_note"]:
        arms[owner]["budget_note"] = f"steps set to {value} on the command line"


def _module(path: Path) -> Any:
    """Import a search file anew under its own name, or another where it would hide a module."""
    name = path.stem
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or Path(file).resolve() != path.resolve():
        installed = [sysconfig.get_path(home) for home in ("purelib", "platlib")]
        is_taken = "." in name or name in {*sys.stdlib_module_names, *sys.modules}
        if is_taken or importlib.machinery.PathFinder.find_spec(name, installed) is not None:
            name = f"tuneparts_search_{name}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.pop(name, None)
    if name == path.stem:
        sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before
        raise
    if not callable(getattr(module, "search", None)):
        raise ConfigError(f"a search file defines `search(scale) -> Search`, but {path} does not.")
    return module


def question(path: Path) -> str:
    """The first paragraph of a search file; one bad file must not hide the others."""
    try:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    except SyntaxError as error:
        return f"(cannot be read: line {error.lineno}: {error.msg})"
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return f"(cannot be read: {type(error).__name__}: {error})"
    return text.partition("\n\n")[0].replace("\n", " ")


def parse_change(text: str) -> tuple[str, str, Any]:
    """Read what `--set` takes, `OWNER.FIELD=VALUE`, as owner, dotted path and value.

    The owner is an arm, or the method that `fit` trains; or `data`, `stop` or `runtime`.
    """
    target, equals, value = text.partition("=")
    owner, dot, path = target.partition(".")
    if not equals or not dot or not owner or not path:
        words = "`ARM.FIELD=VALUE`, or `data`, `stop` or `runtime` in place of the arm"
        raise ConfigError(f"`{text}`: a change reads {words}.")
    return owner, path, _value(value)


def _value(text: str) -> Any:
    """A value typed on the command line: JSON where it can be, text where not."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
