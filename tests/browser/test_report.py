"""The quickstart's report in a browser: light, dark, on a phone, in print."""

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
    shoot(page, f"report-{name}", whole=True)


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
