"""Imports point down only; Ray and MLflow stay in their rooms."""

import ast
from pathlib import Path

import pytest

import tuneparts

ROOT = Path(tuneparts.__file__).parent
LEVELS = {
    "errors": 0, "schema": 0, "seeding": 0, "settings": 0, "config": 0, "provenance": 0,
    "torchvision_door": 0, "redaction": 0, "credentials": 0, "binding": 0, "atomic": 0,
    "glossary": 0,
    "data": 1, "models": 1, "augment": 1,
    "training": 2,
    "partition": 3, "baselines": 3, "ensembles": 3, "superweights": 3, "pwfn": 3,
    "federated": 4, "journal": 4,
    "catalog": 5, "frames": 5,
    "search": 6, "tracking": 6,
    "reports": 7, "bench": 7,
    "cli": 8,
}  # fmt: skip
FILES = sorted(ROOT.rglob("*.py"))
HOMES = {
    "ray": {"search", "bench", "cli"},
    "mlflow": {"tracking", "bench", "cli"},
    "torchvision": {"torchvision_door"},
}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} uses a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    assert room in LEVELS, f"{room} has no level; give it one here and in the README's file tree"
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] != "tuneparts" or len(parts) < 2 or parts[1] not in LEVELS:
            continue
        target = parts[1]
        is_lower = LEVELS[target] < LEVELS[room]
        assert target == room or is_lower or LEVELS[room] == LEVELS[target] == 0, (
            f"{room} (level {LEVELS[room]}) imports {target} (level {LEVELS[target]})"
        )


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_ray_mlflow_and_torchvision_stay_in_their_rooms(path: Path) -> None:
    for name in imports_of(path):
        package = name.split(".")[0]
        if package in HOMES:
            assert room_of(path) in HOMES[package], f"{path} imports {package}"


def test_reports_need_no_training_stack() -> None:
    for path in (ROOT / "reports").rglob("*.py"):
        names = {name.split(".")[0] for name in imports_of(path)}
        assert not names & {"ray", "mlflow", "torch"}, path
