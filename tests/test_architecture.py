"""Imports point down only; Ray and MLflow stay in their rooms."""

import ast
import functools
import re
from pathlib import Path

import tuneparts

ROOT = Path(tuneparts.__file__).parent
LEVELS = {
    "errors": 0, "schema": 0, "seeding": 0, "settings": 0, "config": 0, "provenance": 0,
    "environment": 0,
    "torchvision_door": 0, "redaction": 0, "credentials": 0, "binding": 0, "atomic": 0,
    "glossary": 0, "import_path": 0, "named": 0, "cpus": 0, "pareto": 0, "selection": 0,
    "doorkeeper": 0,
    "data": 1, "models": 1, "augment": 1,
    "training": 2,
    "partition": 3, "baselines": 3, "ensembles": 3, "superweights": 3, "pwfn": 3,
    "objective": 3,
    "federated": 4, "journal": 4,
    "catalog": 5, "frames": 5,
    "search": 6, "tracking": 6,
    "executors": 7, "reports": 7,
    "bench": 8,
    "api": 8, "ray": 8,
    "cli": 9, "testing": 9,
    "__main__": 10,
}  # fmt: skip
IMPORT_PATH = re.compile(r"tuneparts(\.\w+)+:\w+")
"""A string in a table that is imported later, such as those of the catalog."""
FILES = sorted(ROOT.rglob("*.py"))
HOMES = {
    "ray": {"executors", "bench", "cli", "ray"},
    "mlflow": {"tracking", "bench", "cli"},
    "torchvision": {"torchvision_door"},
}


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


def test_reports_need_no_training_stack() -> None:
    for path in (ROOT / "reports").rglob("*.py"):
        names = {name.split(".")[0] for name in imports_of(path)}
        assert not names & {"ray", "mlflow", "torch"}, path
