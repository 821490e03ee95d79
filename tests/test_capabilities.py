"""The ledger of capabilities: what stays or moves is there, and has a test that shows it."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

import tuneparts
from tuneparts.cli.main import app
from tuneparts.core.selection import Selection
from tuneparts.data import sets
from tuneparts.data.target import Target
from tuneparts.hypers import BUILT_IN
from tuneparts.methods import catalog
from tuneparts.nets import NETS
from tuneparts.results.figures.gallery import FIGURES
from tuneparts.search.algorithms.base import Algorithm
from tuneparts.search.algorithms.sampler import SAMPLERS
from tuneparts.search.space import Dimension

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "development" / "capabilities.md"
TEXT = PAGE.read_text("utf-8")
REGISTERED: dict[str, Iterable[str]] = {
    "method": catalog.METHODS.known,
    "net": NETS,
    "data": sets.REGISTRY.known,
    "target": Target.registry.known,
    "hyper": set(BUILT_IN),
    "algorithm": Algorithm.registry.known,
    "sampler": SAMPLERS,
    "dimension": Dimension.registry.known,
    "selection": Selection.registry.known,
    "figure": FIGURES.known,
    "setting": re.findall(
        r"TUNEPARTS_\w+", (ROOT / "tuneparts" / "core" / "settings.py").read_text()
    ),
}
BENCHES = ("benchmarks",)


@dataclass(frozen=True)
class Row:
    """A line of a table: what one can do, how it is found, the test that shows it, its status."""

    capability: str
    reference: str
    test: str
    status: str

    @property
    def kind(self) -> str:
        return self.reference.partition(": ")[0]

    @property
    def target(self) -> str:
        return self.reference.partition(": ")[2]


def rows() -> list[Row]:
    lines = [line for line in TEXT.splitlines() if re.match(r"\| (?!capability|slice)", line)]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines]
    return [Row(*cell) for cell in cells if len(cell) == 4]


ROWS = rows()
KEPT = [row for row in ROWS if not row.status.startswith("goes")]


def commands(command: Any, path: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """Every verb of the command line -> its flags."""
    flags = {o for p in command.params if p.param_type_name == "option" for o in p.opts[:1]}
    found = {" ".join(path): flags} if flags or not isinstance(command, TyperGroup) else {}
    for name, child in getattr(command, "commands", {}).items():
        found |= commands(child, (*path, name))
    return found


VERBS = commands(typer.main.get_command(app))


def words(target: str) -> tuple[str, set[str]]:
    """The verb of a reference, and its flags."""
    given = target.split()
    return " ".join(w for w in given if w[0] != "-"), {w for w in given if w[0] == "-"}


def is_name(path: str) -> bool:
    """Whether a dotted path leads to a module, to what it holds, or to a field of a class."""
    parts = path.split(".")
    found: Any = import_module(parts[0])
    for number, part in enumerate(parts[1:], start=2):
        fields = {**getattr(found, "model_fields", {}), **vars(found).get("__annotations__", {})}
        if part in fields:
            return number == len(parts)
        if not hasattr(found, part):
            try:
                import_module(".".join(parts[:number]))
            except ModuleNotFoundError:
                return False
        found = getattr(found, part)
    return True


def resolves(row: Row) -> bool:
    if row.kind == "cli":
        verb, flags = words(row.target)
        return verb in VERBS and flags <= VERBS[verb]
    if row.kind == "name":
        return is_name(row.target)
    if row.kind == "bench":
        return any(find_spec(home) and find_spec(f"{home}.{row.target}") for home in BENCHES)
    return row.reference == "-" or row.target in REGISTERED[row.kind]


@cache
def defined(file: str) -> set[str]:
    """Functions and classes of a test file, methods as `Class::method`."""
    path = ROOT / file
    found = ast.parse(path.read_text("utf-8")).body if path.is_file() else []
    named = [node for node in found if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    inside = {
        f"{node.name}::{part.name}"
        for node in named
        for part in node.body
        if isinstance(node, ast.ClassDef) and isinstance(part, ast.FunctionDef)
    }
    return {node.name for node in named} | inside


def test_every_line_of_a_table_is_a_row() -> None:
    assert len(ROWS) > 400
    assert TEXT.count(".py::test_") + TEXT.count(".py::Test") >= len(KEPT)
    assert [row for row in ROWS if not re.fullmatch(r"stays|(moves|goes) \(.+\)", row.status)] == []


def test_what_stays_or_moves_is_there() -> None:
    assert [row.reference for row in KEPT if not resolves(row)] == []


def test_what_goes_is_gone() -> None:
    gone = [row for row in ROWS if row not in KEPT and row.reference != "-"]
    assert [row.reference for row in gone if resolves(row)] == []


def test_what_stays_or_moves_has_a_test() -> None:
    tests = [row.test.partition("::") for row in KEPT]
    assert [f"{file}::{name}" for file, _, name in tests if name not in defined(file)] == []


def test_what_goes_is_of_a_slice_that_was_signed() -> None:
    slices = set(re.findall(r"^\| \*\*(.+?)\*\* \|", TEXT, re.MULTILINE))
    going = {row.status[len("goes (") : -1] for row in ROWS if row not in KEPT}
    assert slices
    assert going - slices == set()


def test_every_verb_and_flag_has_a_row() -> None:
    listed = [words(row.target) for row in ROWS if row.kind == "cli"]
    missing = {
        verb: flags - set().union(*(some for name, some in listed if name == verb))
        for verb, flags in VERBS.items()
    }
    assert {verb: flags for verb, flags in missing.items() if flags} == {}
    assert set(VERBS) - {verb for verb, _ in listed} == set()


@pytest.mark.parametrize("kind", [*REGISTERED, "name"])
def test_every_public_and_registered_name_has_a_row(kind: str) -> None:
    public = {f"tuneparts.{name}" for name in tuneparts.__all__}
    names = public if kind == "name" else set(REGISTERED[kind])
    assert names - {row.target for row in ROWS if row.kind == kind} == set()
