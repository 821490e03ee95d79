"""The notebooks, cell by cell in this process: what they show is made by what they say."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent.parent.parent / "examples" / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
MOST_BYTES = 200_000


def code_cells(name: str) -> list[Any]:
    book = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_kept_and_small(name: str) -> None:
    assert (FOLDER / f"{name}.ipynb").stat().st_size < MOST_BYTES
    for cell in code_cells(name):
        source = "".join(cell["source"])
        is_shown = isinstance(ast.parse(source).body[-1], ast.Expr) or "print(" in source
        assert bool(cell["outputs"]) == is_shown, source
        assert "/tmp/" not in json.dumps(cell["outputs"])


@pytest.mark.slow
@pytest.mark.mlflow
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    monkeypatch.setenv("NOTEBOOK_STEPS", "40")
    space: dict[str, Any] = {"__name__": "__main__"}
    for cell in code_cells(name):
        exec(compile("".join(cell["source"]), name, "exec"), space)
