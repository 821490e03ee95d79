"""A search with a method of its own on a real Ray."""

from pathlib import Path

import pytest

from tuneparts.executors import Place, execute
from tuneparts.search import code, load
from tuneparts.search.journal import records

pytestmark = pytest.mark.ray
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_method.py"


def scores(folder: Path) -> dict[str, list[float]]:
    return {
        str(trial): [row.metrics["val/accuracy"] for row in record.rows.values()]
        for trial, record in records(folder / "journal.jsonl").items()
    }


def test_workers_get_the_code_also_where_they_do_not_see_its_folder(
    local_ray, tmp_path, monkeypatch
) -> None:
    search = load.load(str(EXAMPLE), scale="smoke")
    execute(search, folder=tmp_path / "here", place=Place("local", workers=1))
    kept = code.keep

    def kept_elsewhere(search, folder: Path) -> code.Code:
        """The folder as a node of a cluster sees it: not at all."""
        return code.Code("/no/such/folder", kept(search, folder).archive)

    monkeypatch.setattr(code, "keep", kept_elsewhere)
    execute(search, folder=tmp_path / "ray", place=Place("ray"))
    found = scores(tmp_path / "ray")
    assert [len(values) for values in found.values()] == [10, 10, 10]
    assert found == scores(tmp_path / "here")
