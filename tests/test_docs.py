"""Code, commands, links and paths in the documents are true."""

import ast
import doctest
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tuneparts.cli.main import app

ROOT = Path(__file__).parent.parent
RECORDS = {"docs/log.md", "CHANGELOG.md"}
"""They tell what was true on a day, so only their links are checked; `docs/decisions` likewise."""
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "searches/*.md", "deploy/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
MARKERS = {
    "registered": "reads a model that `tuneparts register` made",
    "cluster": "needs a Ray cluster",
}
"""What may follow ```python on a block that cannot run here; of these only the imports run."""

FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
USAGE_ERROR = typer.BadParameter.__bases__[0]
"""The error of a wrong command line: click's, or that of the copy of click inside typer."""
OWN_PATH = re.compile(r"(tuneparts|searches|tests|docs|deploy|dashboards|examples)/[\w./*-]*")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    place: str
    info: str
    text: str


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def living() -> list[Path]:
    """Documents that speak of today."""
    return [
        path
        for path in DOCUMENTS
        if name_of(path) not in RECORDS and path.parent.name != "decisions"
    ]


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text("utf-8")
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        body = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
        found.append(Block(f"{name_of(path)}:{line}", match[2].strip(), body))
    return found


def prose_of(path: Path) -> str:
    """The document without its blocks."""
    return FENCE.sub("", path.read_text("utf-8"))


PYTHON = [
    block for path in living() for block in blocks_of(path) if block.info.split()[:1] == ["python"]
]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.place)
def test_python_runs_as_printed(block: Block) -> None:
    marker = block.info.removeprefix("python").strip()
    assert marker in {"", *MARKERS}, f"{block.place}: a marker is one of {sorted(MARKERS)}"
    tree = ast.parse(block.text)
    if marker:
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert tree.body, f"{block.place}: nothing of it can be checked"
    # The code as it stands, but for budgets: a reader trains longer than a test.
    source = re.sub(r"\bpasses=[\d_]+", "passes=8", ast.unparse(tree))
    namespace: dict[str, object] = {"__name__": "document"}
    exec(compile(source, block.place, "exec"), namespace)
    if callable(search := namespace.get("search")):
        from tuneparts.search.spec import Scale, Search

        assert all(isinstance(search(scale), Search) for scale in Scale)


def test_documents_have_python_to_run() -> None:
    assert any(block.place.startswith("README.md") for block in PYTHON)


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """Each call of a program in the living documents: where, and its words."""
    for path in living():
        lines: list[tuple[str, str]] = []
        for block in blocks_of(path):
            if block.info in {"", "sh", "bash", "console"}:
                joined = block.text.replace("\\\n", " ")
                lines += [(block.place, line.removeprefix("$ ")) for line in joined.splitlines()]
        lines += [(name_of(path), span) for span in CODE_SPAN.findall(prose_of(path))]
        for place, line in lines:
            # A setting of the environment may stand before the command.
            call = re.fullmatch(rf"(?:[A-Z_]+=\S+ )*{program} (.*)", line.strip())
            if call is not None:
                yield place, shlex.split(call[1].replace("[", "").replace("]", ""), comments=True)


def refusal(words: list[str]) -> str | None:
    """Why the command line of `tuneparts` does not take these words, or None."""
    command = typer.main.get_command(app)
    context = typer.Context(command)
    while isinstance(command, TyperGroup):
        if not words:
            return None
        verb, *words = words
        found = command.get_command(context, verb)
        if found is None:
            return f"there is no verb `{verb}`"
        command, context = found, typer.Context(found, info_name=verb, parent=context)
    try:
        _, left, _ = command.make_parser(context).parse_args(
            args=[word for word in words if word != "..."]
        )
    except USAGE_ERROR as error:
        return str(error.format_message())
    return f"nothing takes {left}" if left else None


def test_every_command_is_one_that_the_command_line_takes() -> None:
    calls = list(commands("tuneparts"))
    assert len(calls) > 20
    wrong = [(place, words, why) for place, words in calls if (why := refusal(words))]
    assert wrong == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["serch", "x"], "no verb"),
        (["search", "x", "--no-such-option"], "--no-such-option"),
        (["search", "x", "--scale"], "requires an argument"),
        (["search", "x", "y"], "nothing takes"),
    ],
)
def test_a_command_that_is_wrong_is_found(words: list[str], why: str) -> None:
    assert why in str(refusal(words))


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {
        (place, word) for place, words in commands("make") for word in words if "=" not in word
    }
    assert called
    assert {(place, word) for place, word in called if word not in targets} == set()


def test_every_relative_link_leads_somewhere() -> None:
    broken = [
        (name_of(path), link)
        for path in DOCUMENTS
        for link in LINK.findall(prose_of(path))
        if not re.match(r"[a-z]+:|#", link) and not (path.parent / link.partition("#")[0]).exists()
    ]
    assert broken == []


def test_every_path_of_this_repository_exists() -> None:
    missing = [
        (name_of(path), span)
        for path in living()
        for span in CODE_SPAN.findall(prose_of(path))
        if OWN_PATH.fullmatch(span) and not list(ROOT.glob(span.rstrip("/")))
    ]
    assert missing == []


def test_the_map_is_current() -> None:
    """`make map` writes it anew."""
    written = subprocess.run(
        [sys.executable, ROOT / "docs" / "map.py"], capture_output=True, text=True, check=True
    )
    assert (ROOT / "docs" / "map.md").read_text("utf-8") == written.stdout, "run `make map`"


MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "tuneparts").rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_give_what_they_say(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for room, place in {
        "tuneparts.tracking.": tmp_path,
        "tuneparts.api": tmp_path / "results",
    }.items():
        if module.startswith(room):  # a store that is there already saves seconds
            shutil.copy(request.getfixturevalue("template_store"), place / "mlflow.db")
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path / "results"))
    result = doctest.testmod(import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
