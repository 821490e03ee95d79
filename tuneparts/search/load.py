"""From a search file's name to a resolved, validated `Search`."""

import ast
import difflib
import importlib.machinery
import importlib.util
import inspect
import json
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import BaseModel, ValidationError

import tuneparts
from tuneparts.core.config import parse, sentence
from tuneparts.core.errors import ConfigError, TunepartsError, UnknownNameError
from tuneparts.search import code

if TYPE_CHECKING:  # a listing can do without
    from tuneparts.search.spec import Search

_SCALES = ("smoke", "cpu", "paper")
_PARTS = {"algorithm", "resources", "at_once", "max_failures", "packed"}
"""Parts of an arm, besides its config, that can be changed on the command line."""


def folders() -> list[Path]:
    """List the folders with search files: `searches` here, next to or inside the package."""
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
            raise ConfigError(f"{name}: no such file. Give the path of a search file.")
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

    Modules next to the file can be imported. A file that defines `check(search)` is asked last, and
    raises a ConfigError for a change that would not ask its question any more. `arms` bring along
    their source arms. A change reads `ARM.FIELD=VALUE`; or `FIELD=VALUE` for a field of the search,
    which also changes the arms that take it over, or for a keyword of `search(scale, *,
    FIELD=...)`.
    """
    path = check(name, scale=scale, trials=trials, changes=(changes := list(changes)))
    from tuneparts.search import spec
    from tuneparts.search.spec import Scale, Search

    with code._importable(path.resolve().parent, afresh=True):
        with _by_line(path):
            module = _module(path)
        taken = inspect.signature(module.search).parameters.values()
        known = [one.name for one in taken if one.kind is inspect.Parameter.KEYWORD_ONLY]
        pairs = (change.partition("=")[::2] for change in changes)
        keywords = {name: _value(text) for name, text in pairs if name in known}
        stem = re.sub(r"[^a-z0-9_]+", "_", path.stem.lower())
        own_name = stem if stem[:1].isalpha() else f"search_{stem}"
        named = spec.of_file.set((own_name, question(path), Scale(scale)))
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
        raise ConfigError(f"`trials` = {trials}: an arm that searches runs at least one trial.")
    for change in changes:
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
            # An environment below the same folder is no part of the search.
            is_ours = not {"site-packages", "tuneparts"} & set(parts)
            if is_ours and Path(frame.filename).is_relative_to(folder):
                where = f"{_shown(Path(frame.filename))} line {frame.lineno}"
        what = sentence(error) if isinstance(error, ValidationError) else str(error)
        if not isinstance(error, ValidationError | TunepartsError):
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
        if isinstance(error, NameError) and error.name in tuneparts.__all__:
            what += f". Write `tp.{error.name}`, after `import tuneparts as tp`."
        raise ConfigError(f"{where}: {what}") from error


def _shown(file: Path) -> str:
    absolute = file.absolute()
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else file)


def _changed(
    search: "Search",
    *,
    trials: int | None,
    seeds: Sequence[int] | None,
    arms: Sequence[str] | None,
    changes: Sequence[str],
) -> "Search":
    tree = search.model_dump(mode="json")
    if arms is not None:
        sources, names = {arm.name: arm.source for arm in search.arms}, list(arms)
        for name in names:
            if name not in sources:
                raise UnknownNameError("arm", name, sources)
            names += filter(None, [sources[name]])
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
    if owner not in arms:
        _share(tree, f"{owner}.{path}".removeprefix("search.").strip("."), value)
        return
    if not path:
        raise ConfigError(f"`{owner}`: is an arm, and a change of it reads `ARM.FIELD=VALUE`.")
    arm, head = arms[owner], path.partition(".")[0]
    from tuneparts.methods import catalog

    fields = catalog.config_class(arm["config"]["method"]).model_fields
    if head not in fields.keys() | _PARTS:
        from tuneparts.search.arm import paths_of

        _refuse(path, f"no field of `{owner}`", [*paths_of(arm["config"]), *_PARTS])
    if path == "steps":
        _forget_interval(arm["config"])
        arm["budget_note"] = arm["budget_note"] or f"steps set to {value} on the command line"
    _put(arm if head in _PARTS and head not in arm["config"] else arm["config"], path, value)


def _share(tree: dict[str, Any], path: str, value: Any) -> None:
    """Change a field of the search, and of the arms that have the same, or the default, there."""
    from tuneparts.search.arm import paths_of
    from tuneparts.search.spec import _SHARED, Search

    field = path.partition(".")[0]
    if field not in Search.model_fields or field == "arms":
        own = {name: value for arm in tree["arms"] for name, value in arm["config"].items()}
        paths = paths_of({name: own[name] for name in _SHARED if name in own})
        arms = [arm["name"] for arm in tree["arms"]]
        known = [*arms, *Search.model_fields, "stop.hours", "stop.target", *paths]
        _refuse(path, "neither an arm nor a field of the search", known)
    if field in _SHARED:
        taking = []
        for config in (arm["config"] for arm in tree["arms"]):
            usual = tree.get(field)
            usual = _default(config, field) if usual is None else usual
            taking += [config] if config.get(field, usual) == usual else []
        if not taking:
            raise ConfigError(f"`{path}`: every arm has its own. Change it as `ARM.{path}=VALUE`.")
        for config in taking:
            if field == "steps" and tree.get("interval") is None:
                _forget_interval(config)
            tree[field] = config.pop(field, tree.get(field))  # so that it takes over the search's
    _put(tree, path, value)


def _refuse(path: str, what: str, known: Sequence[str]) -> NoReturn:
    """Raise for a change of what is not there, with what is most like it."""
    head, dot, rest = path.partition(".")
    ends = {one.rpartition(".")[2]: one for one in reversed(known)}
    near = difflib.get_close_matches(head, ends, n=1)
    hint = f" Did you mean `{ends[near[0]]}{dot}{rest}`?" if near else ""
    plain = ", ".join(one for one in known if "." not in one)
    raise ConfigError(f"`{path}`: {what}.{hint} Known: {plain}.")


def _default(config: dict[str, Any], field: str) -> Any:
    """What a field is where neither the method nor the search sets it, as JSON has it."""
    if field == "interval":
        return max(1, config["steps"] // 10) if "steps" in config else None
    from tuneparts.methods import catalog

    fields = catalog.config_class(config["method"]).model_fields
    default = fields[field].get_default(call_default_factory=True) if field in fields else None
    return default.model_dump(mode="json") if isinstance(default, BaseModel) else default


def _forget_interval(config: dict[str, Any]) -> None:
    """Let the interval be a tenth of the steps again, if it is."""
    if config.get("interval") == _default(config, "interval") is not None:
        del config["interval"]


def _put(node: dict[str, Any], path: str, value: Any) -> None:
    *parents, leaf = path.split(".")
    for parent in parents:
        if not isinstance(node.get(parent), dict):
            node[parent] = {}
        node = node[parent]
    node[leaf] = value


def _module(path: Path) -> Any:
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

    The owner is an arm, a field of the search, or the method that `fit` trains.
    """
    target, equals, value = text.partition("=")
    if not equals or not all(target.split(".")):
        words = "`ARM.FIELD=VALUE`, or `FIELD=VALUE` for a field of the search"
        raise ConfigError(f"`{text}`: a change reads {words}.")
    owner, _, path = target.partition(".")
    return owner, path, _value(value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
