"""The dashboard in a browser: while a search runs, and when it is over."""

import re
from typing import Any


def test_during_and_after_a_search(story: Any, serve: Any, new_page: Any, shoot: Any) -> None:
    from playwright.sync_api import expect

    address, link = serve("dashboard")
    page = new_page(known=["/_stcore/"])  # Streamlit looks for its root from below a page first
    story.go_on(5)
    page.goto(link)
    expect(page.get_by_text("rotated_digits (smoke)").first).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d+% · .* elapsed")).first).to_be_visible()
    shoot(page, "dashboard-searches")

    parent = story.tracker.parent_run_id
    page.goto(f"{address}/search?run={parent}")
    expect(page.get_by_role("heading", name=story.search.question)).to_be_visible()
    elapsed = page.get_by_text(re.compile(r"\d+% · .* elapsed")).first
    expect(elapsed).to_be_visible()
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    before = elapsed.inner_text().split("%")[0]
    story.go_on(9)  # the page must follow by itself
    expect(elapsed).not_to_have_text(re.compile(f"^{before}%"))
    shoot(page, "dashboard-running")

    story.finish()
    page.goto(f"{address}/search?run={parent}")
    expect(page.get_by_text("has the highest mean test accuracy").first).to_be_visible()
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    shoot(page, "dashboard-search")

    from tuneparts.tracking import frames

    trials = frames.trials(story.uri, parent)
    page.goto(f"{address}/trial?id={trials['run_id'][0]}")
    expect(page.get_by_role("heading", name=trials["trial"][0])).to_be_visible()
    expect(page.get_by_text("20 steps:").first).to_be_visible()
    shoot(page, "dashboard-trial")

    page.goto(f"{address}/compare")
    expect(page.locator(".js-plotly-plot .main-svg").nth(2)).to_be_visible()
    shoot(page, "dashboard-compare")

    page.goto(f"{address}/report?run={parent}")
    inside = page.frame_locator("iframe").first.frame_locator("iframe")
    expect(inside.get_by_role("heading", name=story.search.question)).to_be_visible()
    expect(inside.locator(".js-plotly-plot").first).to_be_visible()
