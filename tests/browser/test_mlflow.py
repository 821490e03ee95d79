"""MLflow's own UI over our store: run list, charts by arm, compare, artifacts."""

import json
import re
from typing import Any
from urllib.parse import quote

KNOWN = (
    "/mlflow/users/current",  # MLflow asks for the login that only its accounts have
    "ResizeObserver loop",  # a harmless word of Chromium about MLflow's resizable panes
)


def test_a_click_on_an_experiment_opens_its_runs(
    story: Any, serve: Any, new_page: Any, shoot: Any
) -> None:
    from playwright.sync_api import expect

    story.finish()
    _, link = serve("ui")
    page = new_page(known=KNOWN)
    page.goto(link)
    page.get_by_role("link", name="rotated_digits").first.click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    expect(page.get_by_text("Traces 0")).to_have_count(0)
    run = page.get_by_role("link", name=re.compile("^20")).first
    expect(run).to_be_visible()
    assert page.evaluate("document.querySelectorAll('[role=row]').length") > 1
    shoot(page, "mlflow-clicked-experiment")
    run.click()
    expect(page.get_by_text("best/val/accuracy").first).to_be_visible()
    with page.context.expect_page() as opened:  # MLflow opens links of descriptions in a new tab
        page.get_by_role("link", name="Report", exact=True).first.click()
    inside = opened.value.frame_locator("iframe").first
    expect(inside.get_by_role("heading", name=story.search.question)).to_be_visible()

    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Charts by arm").first.click()
    charts = opened.value
    expect(charts.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    assert charts.evaluate(WIDTH) >= 250  # 120 with the list of runs and the assistant beside it
    shoot(charts, "mlflow-clicked-charts")


WIDTH = "document.querySelector('.js-plotly-plot .main-svg').getBoundingClientRect().width"


def test_runs_charts_compare_and_artifacts(
    story: Any, serve: Any, new_page: Any, shoot: Any
) -> None:
    from playwright.sync_api import expect

    from tuneparts.tracking import frames, store

    story.finish()
    address, link = serve("ui")
    parent = story.tracker.parent_run_id
    experiment = store.client(story.uri).get_run(parent).info.experiment_id
    page = new_page(width=1440, known=KNOWN)

    page.goto(link)
    expect(page.get_by_role("link", name="rotated_digits").first).to_be_visible()
    assistant = page.get_by_role("button", name=re.compile("close", re.IGNORECASE))
    if assistant.count():
        assistant.last.click()
    page.goto(f"{address}/#/experiments/{experiment}/runs")
    expect(page.get_by_text(story.run.folder.name).first).to_be_visible()
    shoot(page, "mlflow-runs")

    charts = "viewStateShareKey=arms&compareRunsMode=CHART&workflowType=machine_learning"
    page.goto(f"{address}/#/experiments/{experiment}/runs?{charts}")
    for arm in ("partitioned", "random", "none"):
        expect(page.get_by_text(re.compile(rf"\b{arm}\b")).first).to_be_visible()
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    shoot(page, "mlflow-charts")

    page.goto(f"{address}/#/experiments/{experiment}/runs/{parent}")
    expect(page.get_by_role("link", name="Report", exact=True).first).to_be_visible()
    shoot(page, "mlflow-run")
    way = page.get_by_role("link", name="Report", exact=True).first.get_attribute("href")
    page.goto(f"{address}/{way}")
    inside = page.frame_locator("iframe").first
    expect(inside.get_by_role("heading", name=story.search.question)).to_be_visible()
    expect(inside.locator(".js-plotly-plot").first).to_be_visible()
    shoot(page, "mlflow-report")

    trials = frames.trials(story.uri, parent)
    # MLflow draws the first twenty metrics of a comparison, more as one scrolls.
    few = trials[trials["arm"].isin(["none", "random"]) & (trials["seed"] == 0)]
    chosen = few["run_id"].tolist()[:3]
    pair = f"runs={quote(json.dumps(chosen))}&experiments={quote(json.dumps([experiment]))}"
    page.goto(f"{address}/#/compare-runs?{pair}")
    expect(page.get_by_text("random/seed0/00000").first).to_be_visible()
    expect(page.get_by_text("test/accuracy").first).to_be_visible()
    shoot(page, "mlflow-compare")
