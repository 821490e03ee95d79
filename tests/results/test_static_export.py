import json
import xml.etree.ElementTree as ET

import pytest

from tuneparts.results import page
from tuneparts.results.run_data import RunData

needs_browser = pytest.mark.skipif(page.browser() is None, reason="Chromium is not installed")


@pytest.mark.browser
@needs_browser
def test_every_figure_becomes_an_svg_with_its_words(trials, steps, metadata, tmp_path):
    RunData(metadata, trials, steps).write(tmp_path)
    paths = page._write_svgs(tmp_path)
    assert set(paths) == {f"figures/{name}.svg" for name in metadata.figures}
    for path in paths.values():
        root = ET.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg")
        assert root.attrib["width"] == str(page.WIDTH)
    words = "".join(ET.parse(paths["figures/accuracy.svg"]).getroot().itertext())
    assert "partitioned" in words
    assert "steps" in words


def test_without_a_browser_there_are_no_files(trials, steps, metadata, tmp_path, monkeypatch):
    RunData(metadata, trials, steps).write(tmp_path)
    monkeypatch.setattr(page, "NAMES", ("no-such-browser",))
    assert page._write_svgs(tmp_path) == {}


def test_a_browser_that_fails_is_no_reason_to_fail(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(page, "NAMES", ("false",))
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.json").write_text(json.dumps({"data": [], "layout": {}}))
    assert page._write_svgs(tmp_path) == {}
    assert "not drawn" in caplog.text
