import json
from dataclasses import replace
from pathlib import Path

import pytest

from tuneparts.results.metadata import ReportMetadata
from tuneparts.results.run_data import RunData
from tuneparts.results.write import write


def test_writes_what_it_says(trials, steps, metadata, tmp_path):
    paths = write(RunData(metadata, trials, steps), tmp_path / "new" / "folder")
    figures = {f"figures/{name}.{kind}" for name in metadata.figures for kind in ("json", "csv")}
    files = {"report.html", "table.md", "table.csv", "table.tex", "trials.csv", "metadata.json"}
    assert set(paths) == files | figures
    written = {path for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert written == set(paths.values())
    assert ReportMetadata.from_json(paths["metadata.json"].read_text()) == metadata
    assert json.loads(paths["figures/accuracy.json"].read_text())["data"]
    size = sum(path.stat().st_size for path in paths.values())
    assert size <= 6e6, "a report is small enough to be mailed"


def test_arguments_of_a_figure_make_a_tame_file_name(trials, steps, metadata, tmp_path):
    asked = replace(metadata, figures=("accuracy:test/nll", "sweep:param.nothing"))
    names = {
        name
        for name in write(RunData(asked, trials, steps), tmp_path)
        if name.startswith("figures")
    }
    assert names == {f"figures/accuracy-test-nll.{kind}" for kind in ("json", "csv")}


def test_a_failure_leaves_the_old_file_whole(trials, steps, metadata, tmp_path, monkeypatch):
    metadata = replace(metadata, figures=())
    old = {n: p.read_text() for n, p in write(RunData(metadata, trials, steps), tmp_path).items()}

    def full(self, target):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        write(RunData(replace(metadata, question="Another?"), trials, steps), tmp_path)
    assert {n: (tmp_path / n).read_text() for n in old} == old
    assert not list(tmp_path.rglob("*.part*"))
