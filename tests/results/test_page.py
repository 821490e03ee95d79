import base64
import gzip
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
from plotly.offline import get_plotlyjs

from tuneparts.core.glossary import GLOSSARY
from tuneparts.results import page as pages
from tuneparts.results.figures.gallery import draw
from tuneparts.results.page import MAX_LISTED, address, figure_page
from tuneparts.results.run_data import RunData

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'


needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="Chromium is not installed"
)


def page(run_data):
    """The page with all figures that the search asks for."""
    asked = run_data.metadata.figures
    return pages._page(run_data, {address(one): draw(one, run_data) for one in asked})


def embedded(text):
    """The figures inside a page, as plain data."""
    parts = text.split('<script type="application/json"')[1:]
    return [json.loads(part.split(">", 1)[1].split("</script>", 1)[0]) for part in parts]


class Tags(HTMLParser):
    """Elements with their attributes, and the visible text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


PACKED = re.compile(r'<script type="text/plain" id="plotly">([^<]+)</script>')


def bare(text):
    """The page without plotly's own code, which is long and not ours."""
    return PACKED.sub("", text)


def inlined(text):
    """Plotly's code, as often as the page has it, as its script unpacks it."""
    return [gzip.decompress(base64.b64decode(one)).decode() for one in PACKED.findall(text)]


@pytest.fixture(scope="session")
def text(frames, metadata):
    return page(RunData(metadata, *frames))


def test_same_frames_same_bytes(text, frames, metadata):
    again = page(RunData(metadata, frames[0].copy(), frames[1].copy()))
    assert again == text


def test_plotly_is_inlined_once_and_nothing_is_fetched(text):
    assert inlined(text) == [get_plotlyjs()]
    for tag, attrs in Tags(bare(text)).tags:
        link = attrs.get("src") or attrs.get("href")
        assert link is None or link.startswith(("data:", "#")), (tag, link)
    assert "default-src 'none'" in text


def test_says_what_a_reader_needs(text, metadata):
    words = " ".join(Tags(bare(text)).words).replace("\N{NO-BREAK SPACE}", " ")
    for part in (
        metadata.question,
        "is inconclusive",
        "22/24 (1 failed, 1 missing)",
        "loss was nan at step 160",
        "random/seed1/00003",
        metadata.notes,
        metadata.command,
        metadata.digest,
        metadata.commit,
        metadata.parent_run_id,
        "tuneparts ui",
        "0.1.0",
    ):
        assert part in words


def test_every_figure_has_a_place_and_its_data(text, metadata):
    tags = Tags(bare(text)).tags
    places = {attrs["id"] for tag, attrs in tags if attrs.get("class") == "plot"}
    sources = [attrs["data-for"] for tag, attrs in tags if "data-for" in attrs]
    assert set(sources) == set(metadata.figures)
    assert places == {f"plot-{name}" for name in sources}
    assert all(figure["data"] for figure in embedded(text))
    anchors = [attrs["id"] for tag, attrs in tags if tag == "section"]
    assert set(metadata.figures) < set(anchors)
    # The list of contents leads to every section, in their order.
    links = [attrs["href"] for tag, attrs in tags if tag == "a" and "download" not in attrs]
    assert links == [f"#{anchor}" for anchor in anchors]


def test_what_the_arms_are_and_where_it_ran_stand_on_the_page(frames, metadata):
    arms = [replace(arm, what=f"About {arm.name}.", space="") for arm in metadata.arms]
    arms[1] = replace(arms[1], space="rotation (rad): 0 to 3.14")
    facts = {"data": "digits", "machine": "8 cores <b>"}
    told = replace(metadata, arms=tuple(arms), facts=facts)
    text = pages._page(RunData(told, *frames), {})
    words = " ".join(Tags(bare(text)).words).replace("\N{NO-BREAK SPACE}", " ")
    for part in ("About random.", "rotation (rad): 0 to 3.14", "trials per seed", "digits"):
        assert part in words
    assert "8 cores &lt;b&gt;" in text


def test_csv_links_hold_the_numbers(text, trials, metadata):
    links = re.findall(
        r'download="([^"]+)" href="data:text/csv;charset=utf-8;base64,([^"]+)"', text
    )
    files = {name: pd.read_csv(io.BytesIO(base64.b64decode(data))) for name, data in links}
    assert set(files) == {"table.csv", *(f"{name}.csv" for name in metadata.figures)}
    assert len(files["projections.csv"]) == (trials["outcome"] == "finished").sum()


def test_the_words_of_the_project_are_explained(text):
    tags = Tags(bare(text))
    words = " ".join(" ".join(tags.words).split())
    for word, meaning in GLOSSARY.items():
        start = meaning.partition("`")[0].strip()
        assert f"{word} {start}" in words
    assert "<code>smoke</code>" in text
    tips = {attrs["title"] for tag, attrs in tags.tags if tag == "th" and "title" in attrs}
    assert {GLOSSARY["arm"], GLOSSARY["step"], GLOSSARY["seed"]} < tips
    assert "not an epoch" in text.partition("<h2>Scores and costs</h2>")[2]


def test_a_figure_alone_is_a_whole_page(trials, steps, metadata):
    text = figure_page(draw("accuracy", RunData(metadata, trials, steps)))
    assert len(embedded(text)) == 1
    assert inlined(text) == [get_plotlyjs()]


def dom(path, folder, query="", complaints=()):
    """The page as Chromium has made it; it complains of what is named, and of nothing else."""
    flags = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run"
    flags += " --disable-component-update --disable-sync --enable-logging=stderr --dump-dom"
    command = ["chromium", *flags.split(), "--virtual-time-budget=5000"]
    command += [f"--user-data-dir={folder / 'profile'}", path.as_uri() + query]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert [words for words in complaints if not any(words in line for line in said)] == []
    assert [line for line in said if not any(words in line for words in complaints)] == []
    return done.stdout


def test_hostile_names_and_errors_stay_text(trials, steps, metadata):
    arms = (replace(metadata.arms[0], name=HOSTILE, budget_note=HOSTILE), *metadata.arms[1:])
    fields = ("question", "notes", "name", "scale", "command", "commit", "digest", "ui_command")
    hostile = replace(metadata, arms=arms, **dict.fromkeys(fields, HOSTILE))
    hostile = replace(hostile, versions={HOSTILE: HOSTILE}, parent_run_id=HOSTILE)
    trials = trials.replace({"arm": {"none": HOSTILE}})
    steps = steps.replace({"arm": {"none": HOSTILE}})
    trials.loc[trials["outcome"] == "failed", ["error", "trial", "run_id"]] = HOSTILE
    text = page(RunData(hostile, trials, steps))
    tags = Tags(bare(text)).tags
    assert [tag for tag, _ in tags].count("script") == 5 + 1  # figures, ours
    assert not [attrs for tag, attrs in tags if "onerror" in attrs]
    assert "img" not in [tag for tag, _ in tags]
    assert "<script>alert" not in text
    names = {trace.get("name") for figure in embedded(text) for trace in figure["data"]}
    assert not any(name and "<" in name for name in names)


def test_an_empty_run_still_makes_a_page(trials, steps, metadata):
    text = page(RunData(metadata, trials.iloc[:0], steps.iloc[:0]))
    assert "No answer" in text
    assert "missing: 24/24" in text
    assert embedded(text) == []


def test_a_long_list_of_failures_is_counted(trials, steps, metadata):
    many = replace(metadata, arms=(replace(metadata.arms[0], trials_per_seed=MAX_LISTED),))
    failed = trials.iloc[:1].assign(outcome="failed", error="boom")
    rows = pd.concat([failed.assign(index=i) for i in range(MAX_LISTED + 5)], ignore_index=True)
    text = page(RunData(many, rows, steps.iloc[:0]))
    assert f"unfinished trials ({MAX_LISTED + 5})" in text
    assert "5 more are listed" in text


@needs_browser
@pytest.mark.browser
def test_a_browser_draws_every_figure_without_complaint(text, metadata, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    found = dom(path, tmp_path)
    drawn = re.findall(
        r'id="plot-([a-z_]+)"[^>]*class="[^"]*js-plotly-plot|'
        r'class="[^"]*js-plotly-plot[^"]*" id="plot-([a-z_]+)"',
        found,
    )
    assert {a or b for a, b in drawn} == set(metadata.figures)
    assert found.count('class="main-svg"') >= 4


@needs_browser
@pytest.mark.browser
def test_an_address_shows_one_figure_alone(text, metadata, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    parts = re.findall(r"<(?:header|section)[^>]*>", bare(dom(path, tmp_path, "?figure=hypers")))
    (shown,) = [part for part in parts if "hidden" not in part]
    assert 'id="hypers"' in shown


@needs_browser
@pytest.mark.browser
def test_the_page_runs_its_own_scripts_and_no_other(text, metadata, tmp_path):
    """Were something not escaped one day, the browser would still not run it."""
    slipped = '<script>document.title = "caught"</script><img src=x onerror="document.title=1">'
    path = tmp_path / "report.html"
    path.write_text(text.replace("<main>", f"<main>{slipped}", 1), encoding="utf-8")
    blocked = ("Executing inline script violates", "Executing inline event handler violates")
    found = dom(path, tmp_path, complaints=(*blocked, "Loading the image"))
    assert f"<title>{metadata.name}" in found
    assert "js-plotly-plot" in found
