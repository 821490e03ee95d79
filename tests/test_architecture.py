"""Imports point down only; Ray and MLflow stay in their rooms."""

import ast
import functools
import re
from pathlib import Path

import tuneparts

ROOT = Path(tuneparts.__file__).parent
LEVELS = {
    "core": 0,
    "data": 1, "nets": 1,
    "hypers": 2,
    "training": 3,
    "methods": 4,
    "search": 5,
    "executors": 6, "tracking": 6,
    "results": 7,
    "ray": 8, "testing": 8,
    "cli": 9,
    "__main__": 10,
}  # fmt: skip
IMPORT_PATH = re.compile(r"tuneparts(\.\w+)+:\w+")
"""A string in a table that is imported later, such as those of the catalog."""
FILES = sorted(ROOT.rglob("*.py"))
HOMES = {
    "ray": {"executors", "cli", "ray"},
    "mlflow": {"tracking", "cli"},
    "torchvision": {"core"},
}


SIZES = {
    "all": (37508, 214, 499),
    "cli": (2192, 12, 4),
    "core": (1577, 16, 81),
    "data": (2489, 13, 35),
    "executors": (2053, 13, 21),
    "hypers": (1840, 7, 27),
    "methods": (9366, 54, 56),
    "nets": (1462, 8, 43),
    "ray": (643, 4, 0),
    "results": (5269, 26, 50),
    "search": (5820, 30, 98),
    "testing": (755, 5, 8),
    "top": (27, 2, 0),
    "tracking": (1805, 11, 26),
    "training": (2210, 13, 50),
}
"""Most lines, files and public names of each room, and of all. They only fall: whoever adds takes
something away, or says in the commit why not. `python tests/test_architecture.py` prints the table.
"""


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@functools.cache
def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} uses a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and IMPORT_PATH.fullmatch(str(node.value)):
            found.append(str(node.value).replace(":", "."))
    return found


def upward_imports(path: Path) -> list[str]:
    """What a file imports from its own level or from above, beside its own room."""
    room = room_of(path)
    found = []
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] != "tuneparts" or len(parts) < 2 or parts[1] not in LEVELS:
            continue
        target = parts[1]
        is_lower = LEVELS[target] < LEVELS[room]
        if not (target == room or is_lower or LEVELS[room] == LEVELS[target] == 0):
            found.append(
                f"{path.relative_to(ROOT)} (level {LEVELS[room]}) imports {name} "
                f"(level {LEVELS[target]})"
            )
    return found


def public_names(path: Path) -> int:
    """Functions and classes at the top of a module, where neither begins with an underscore."""
    if path.stem.startswith("_") and not path.stem.startswith("__"):
        return 0
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    body = ast.parse(path.read_text("utf-8")).body
    return sum(isinstance(node, kinds) and not node.name.startswith("_") for node in body)


def sizes() -> dict[str, tuple[int, int, int]]:
    """Lines, files and public names by room; what lies at the top counts as one room."""
    rooms: dict[str, list[Path]] = {"all": FILES}
    for path in FILES:
        rooms.setdefault(room_of(path) if path.parent != ROOT else "top", []).append(path)
    return {
        room: (
            sum(path.read_text("utf-8").count("\n") for path in paths),
            len(paths),
            sum(map(public_names, paths)),
        )
        for room, paths in rooms.items()
    }


def test_the_package_only_becomes_smaller() -> None:
    grown = {
        room: f"{now} beside at most {SIZES.get(room, (0, 0, 0))}"
        for room, now in sizes().items()
        if any(a > b for a, b in zip(now, SIZES.get(room, (0, 0, 0)), strict=True))
    }
    assert grown == {}


def test_every_room_has_a_level() -> None:
    rooms = {room_of(path) for path in FILES} - {"__init__"}
    assert rooms - set(LEVELS) == set(), "give the new room a level in LEVELS"
    assert set(LEVELS) - rooms == set(), "remove the level of a room that is gone from LEVELS"


def test_imports_point_down() -> None:
    files = [path for path in FILES if room_of(path) != "__init__"]
    assert [line for path in files for line in upward_imports(path)] == []


def test_ray_mlflow_and_torchvision_stay_in_their_rooms() -> None:
    strays = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in FILES
        for name in imports_of(path)
        if room_of(path) not in HOMES.get(name.split(".")[0], {room_of(path)})
    ]
    assert strays == []


def test_a_search_runs_without_ray() -> None:
    for path in (ROOT / "executors").glob("*.py"):
        assert "ray" not in {name.split(".")[0] for name in imports_of(path)}, path


def test_results_need_no_training_stack() -> None:
    for path in (ROOT / "results").rglob("*.py"):
        names = {name.split(".")[0] for name in imports_of(path)}
        torch = set() if path.name == "results.py" else {"torch"}  # it loads trained nets
        assert not names & {"ray", "mlflow", *torch}, path


if __name__ == "__main__":
    for name, numbers in sorted(sizes().items()):
        print(f'    "{name}": {numbers},')
