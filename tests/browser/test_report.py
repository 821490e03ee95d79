"""The quickstart's report in a browser: light, dark, on a phone, in print."""

import os
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("light", {}),
        ("dark", {"color_scheme": "dark"}),
        ("phone", {"width": 390, "height": 844}),
        ("print", {}),
    ],
)
def test_every_figure_is_drawn_and_nothing_is_cut_off(
    story: Any, new_page: Any, shoot: Any, name: str, options: dict[str, Any]
) -> None:
    from playwright.sync_api import expect

    story.finish()
    page = new_page(**options)
    page.goto(story.report.as_uri())
    plots = page.locator(".plot")
    drawn = page.locator(".plot.js-plotly-plot")
    expect(drawn).to_have_count(plots.count())
    assert plots.count() == len(story.search.figures)
    if name == "print":  # from a window as wide as any onto a sheet of A4
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 718, "height": 1000})
        widest = "Math.max(...[...document.querySelectorAll('.main-svg')].map(e => e.clientWidth))"
        page.wait_for_function(f"{widest} <= 718")
    # Tables and figures may scroll inside their box; the page itself never does sideways.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cut = page.evaluate(CUT_OFF)
    assert not cut, cut
    if name == "phone":  # panels stand below each other, with the legend under them
        assert page.evaluate(COLUMNS) == 1
    shoot(page, f"report-{name}", whole=True)


COLUMNS = """() => Math.max(...[...document.querySelectorAll('.js-plotly-plot')].map((plot) => {
  const axes = Object.keys(plot._fullLayout).filter((key) => /^xaxis\\d*$/.test(key));
  const shown = axes.map((key) => plot._fullLayout[key]).filter((axis) => axis.visible);
  return new Set(shown.map((axis) => axis.domain[0].toFixed(3))).size;
}))"""


CUT_OFF = """() => [...document.querySelectorAll('.js-plotly-plot')].flatMap((plot) => {
  const box = plot.querySelector('.main-svg').getBoundingClientRect();
  return [...plot.querySelectorAll('text')].filter((text) => {
    const own = text.getBoundingClientRect();
    return own.width && (own.left < box.left - 1 || own.right > box.right + 1
      || own.top < box.top - 1 || own.bottom > box.bottom + 1);
  }).map((text) => `${plot.id}: ${text.textContent}`);
})"""


def test_a_figure_is_saved_as_svg_in_colours_of_print(story: Any, new_page: Any) -> None:
    story.finish()
    page = new_page(color_scheme="dark", accept_downloads=True)
    page.goto(story.report.as_uri())
    page.locator(".plot.js-plotly-plot").first.wait_for()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="figure as SVG").first.click()
    text = waiting.value.path().read_text(encoding="utf-8")
    assert text.lstrip().startswith("<svg")
    assert "rgb(36, 41, 47)" in text  # ink, though the screen is dark


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, {"width": 390}])
def test_axe_finds_nothing(story: Any, new_page: Any, options: dict[str, Any]) -> None:
    axe = Path(os.environ.get("TUNEPARTS_AXE", ""))
    if not axe.is_file():
        pytest.skip("TUNEPARTS_AXE names no axe.min.js (npm pack axe-core)")
    story.finish()
    page = new_page(**options)
    page.goto(story.report.as_uri())
    page.locator(".plot.js-plotly-plot").last.wait_for()
    page.add_script_tag(content=axe.read_text("utf-8"))
    found = page.evaluate("axe.run()")
    assert not [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]]
