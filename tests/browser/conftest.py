"""Headless Chromium over one small search: while it runs, and when it is over."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

ROOT = Path(__file__).parent.parent.parent
CHROMIUM = shutil.which("chromium")
WAIT = 300_000
"""Milliseconds that anything may take to appear on a busy machine."""


@pytest.hookimpl(wrapper=True)  # before marks are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Everything here needs the browser, and shares one search."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(1800))
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="Chromium is not installed"))
    yield


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    api.expect.set_options(timeout=WAIT)
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Pages whose errors, and whose calls to other machines, fail the test at its end.

    What a page that is not ours is known to complain of is named by the test: `known`.
    """
    wrong: list[str] = []
    excused: list[str] = []
    contexts: list[Any] = []

    def heard(message: Any) -> None:
        text = f"console: {message.text} ({message.location['url']})"
        if message.type == "error" and not any(words in text for words in excused):
            wrong.append(text)

    def asked(request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1", "file:", "data:", "blob:", "about:")):
            wrong.append(f"request: {request.url}")

    def make(
        width: int = 1280, height: int = 900, *, known: Sequence[str] = (), **options: Any
    ) -> Any:
        excused.extend(known)
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.on("console", heard)
        page.on("pageerror", lambda error: wrong.append(f"page: {error}"))
        page.on("request", asked)
        return page

    yield make
    for context in contexts:
        context.close()
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="package")
def shoot() -> Callable[..., None]:
    """Keeps a screenshot under a name; the folder is kept by CI."""
    folder = Path(os.environ.get("TUNEPARTS_SCREENSHOTS", ROOT / "build" / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)

    def keep(page: Any, name: str, *, whole: bool = False) -> None:
        page.screenshot(path=folder / f"{name}.png", full_page=whole)

    return keep


class Story:
    """One search of the quickstart at its smallest, told as far as a test wants it."""

    def __init__(self, folder: Path, run_here: Callable[..., Iterator[None]]) -> None:
        from tuneparts.results.running import tracking_card
        from tuneparts.search import load, runs
        from tuneparts.tracking.tracker import Tracker

        self.folder = folder
        self.uri = f"sqlite:///{folder / 'mlflow.db'}"
        self.search = load.load("rotated_digits", scale="smoke", trials=3, seeds=[0, 1])
        self.run = runs.create(
            folder, self.search, command="tuneparts search rotated_digits --scale smoke",
            commit="0123456789ab", versions={"python": "3"}, storage=None,
        )  # fmt: skip
        card = tracking_card(self.run)
        self.tracker = Tracker(self.uri, folder=self.run.folder, search=card, interval=0.05)
        self._steps = run_here(self.run, self.tracker)
        self._is_over = False

    @property
    def report(self) -> Path:
        return self.run.folder / "report" / "report.html"

    def go_on(self, num_reports: int) -> None:
        for _ in range(num_reports):
            next(self._steps)
        assert self.tracker.flush()

    def finish(self) -> None:
        from tuneparts import Results
        from tuneparts.results import running

        if self._is_over:
            return
        for _ in self._steps:
            pass
        assert self.tracker.flush()
        running._publish(self.run, self.tracker, Console(quiet=True), show=Results.write_report)
        assert self.tracker.close() == []
        self._is_over = True


@pytest.fixture(scope="package")
def story(
    tmp_path_factory: pytest.TempPathFactory,
    template_store: Path,
    run_here: Callable[..., Iterator[None]],
) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("story")
    shutil.copy(template_store, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNEPARTS_RESULTS", str(folder))
        patch.delenv("TUNEPARTS_TRACKING_URI", raising=False)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield Story(folder, run_here)


@pytest.fixture(scope="package")
def serve(story: Story) -> Iterator[Callable[..., tuple[str, str]]]:
    """Starts `tuneparts VERB --port N` over the story's store; returns its address and link."""
    started: list[subprocess.Popen[bytes]] = []

    def start(verb: str) -> tuple[str, str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        words = [sys.executable, "-m", "tuneparts.cli.main", verb, "--port", str(port)]
        said = story.folder / f"{verb}.log"
        with said.open("wb") as log:  # the process keeps its own handle
            started.append(subprocess.Popen(words, stdout=log, stderr=log, cwd=story.folder))
        address = f"http://127.0.0.1:{port}"
        for _ in range(240):
            try:
                urllib.request.urlopen(address, timeout=5).close()
                raise AssertionError(f"{verb} asks for no token")
            except urllib.error.HTTPError:
                return address, re.search(r"http://\S+", said.read_text())[0]
            except OSError:
                assert started[-1].poll() is None, said.read_text()
                time.sleep(0.5)
        raise TimeoutError(f"{verb} does not answer on {address}")

    yield start
    for process in started:
        process.terminate()
        process.wait(30)
