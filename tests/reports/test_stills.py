import json
import xml.etree.ElementTree as ET

import pytest

from tuneparts.reports import stills
from tuneparts.reports.write import write

needs_browser = pytest.mark.skipif(stills.browser() is None, reason="Chromium is not installed")


@pytest.mark.browser
@needs_browser
def test_every_figure_becomes_an_svg_with_its_words(trials, steps, outline, tmp_path):
    write(outline, trials, steps, tmp_path)
    paths = stills.write(tmp_path)
    assert set(paths) == {f"figures/{name}.svg" for name in outline.figures}
    for path in paths.values():
        root = ET.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg")
        assert root.attrib["width"] == str(stills.WIDTH)
    words = "".join(ET.parse(paths["figures/accuracy.svg"]).getroot().itertext())
    assert "partitioned" in words
    assert "passes" in words


def test_without_a_browser_there_are_no_files(trials, steps, outline, tmp_path, monkeypatch):
    write(outline, trials, steps, tmp_path)
    monkeypatch.setattr(stills, "NAMES", ("no-such-browser",))
    assert stills.write(tmp_path) == {}


def test_a_browser_that_fails_is_no_reason_to_fail(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(stills, "NAMES", ("false",))
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.json").write_text(json.dumps({"data": [], "layout": {}}))
    assert stills.write(tmp_path) == {}
    assert "not drawn" in caplog.text
