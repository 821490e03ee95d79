import json
from dataclasses import replace
from pathlib import Path

import pytest

from tuneparts.reports.outline import Outline
from tuneparts.reports.page import embedded
from tuneparts.reports.write import write


def test_writes_what_it_says(trials, steps, outline, tmp_path):
    paths = write(outline, trials, steps, tmp_path / "new" / "folder")
    figures = {
        f"figures/{name}.{kind}" for name in outline.figures for kind in ("html", "json", "csv")
    }
    files = {"report.html", "table.md", "table.csv", "table.tex", "trials.csv", "outline.json"}
    assert set(paths) == files | figures
    written = {path for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert written == set(paths.values())
    assert Outline.from_json(paths["outline.json"].read_text()) == outline
    assert json.loads(paths["figures/accuracy.json"].read_text())["data"]
    alone = paths["figures/accuracy.html"].read_text()
    assert embedded(alone) == [json.loads(paths["figures/accuracy.json"].read_text())]


def test_arguments_of_a_figure_make_a_tame_file_name(trials, steps, outline, tmp_path):
    asked = replace(outline, figures=("accuracy:test/nll", "sweep:param.nothing"))
    names = {name for name in write(asked, trials, steps, tmp_path) if name.startswith("figures")}
    assert names == {f"figures/accuracy-test-nll.{kind}" for kind in ("html", "json", "csv")}


def test_a_failure_leaves_the_old_file_whole(trials, steps, outline, tmp_path, monkeypatch):
    outline = replace(outline, figures=())
    old = {n: p.read_text() for n, p in write(outline, trials, steps, tmp_path).items()}

    def full(self, target):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        write(replace(outline, question="Another?"), trials, steps, tmp_path)
    assert {n: (tmp_path / n).read_text() for n in old} == old
    assert not list(tmp_path.rglob("*.part*"))
