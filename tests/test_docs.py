"""Code, commands, links and paths in the documents are true."""

import ast
import doctest
import json
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

import tuneparts
from tuneparts.cli.main import app
from tuneparts.executors.place import Place

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
def test_python_runs_as_printed(
    block: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path))
    marker = block.info.removeprefix("python").strip()
    assert marker in {"", *MARKERS}, f"{block.place}: a marker is one of {sorted(MARKERS)}"
    tree = ast.parse(block.text)
    if marker:
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert tree.body, f"{block.place}: nothing of it can be checked"
    # The code as it stands, but for budgets: a reader trains longer than a test.
    source = re.sub(r"\bsteps=[\d_]+", "steps=8", ast.unparse(tree))
    # A module that can be imported, as the reader's file can: a worker finds functions by name.
    module = types.ModuleType("document")
    monkeypatch.setitem(sys.modules, "document", module)
    exec(compile(source, block.place, "exec"), module.__dict__)
    if callable(search := getattr(module, "search", None)):
        from tuneparts.search.spec import Scale, Search

        assert all(isinstance(search(scale), Search) for scale in Scale)


def test_documents_have_python_to_run() -> None:
    assert any(block.place.startswith("README.md") for block in PYTHON)


@pytest.mark.mlflow
def test_the_search_of_the_readme_is_short_and_runs(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = [b for b in PYTHON if b.place.startswith("README.md") and "def search(" in b.text]
    assert len(block.text.splitlines()) <= 20
    file = results.parent / "rotations.py"
    file.write_text(block.text)
    monkeypatch.chdir(results.parent)
    found = tuneparts.run(file, scale="smoke", trials=2, seeds=[0, 1], workers=1)
    assert found.search.name == "rotations"
    assert found.search.question == "Is one partitioned run worth twenty random trials?"
    assert found.trials["outcome"].tolist() == ["finished"] * 8
    assert set(found.table["arm"]) == {"partitioned", "random", "retrained"}


MODULES_FOR_USERS = {"data", "hypers", "methods", "nets", "ray", "testing"}


def shown() -> Iterator[tuple[str, str]]:
    """Python that users read: blocks of documents, examples, notebooks, searches, the template."""
    users = [block for block in PYTHON if not block.place.startswith("CONTRIBUTING.md")]
    yield from ((block.place, block.text) for block in users)
    for pattern in ("examples/**/*.py", "searches/**/*.py", "tuneparts/cli/new_search.txt"):
        yield from ((name_of(path), path.read_text("utf-8")) for path in ROOT.glob(pattern))
    for path in ROOT.glob("examples/**/*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        yield name_of(path), "\n".join(code)


def unknown_names(text: str) -> list[str]:
    """Imports other than `import tuneparts as tp`, and names that `tp` or its modules lack."""
    tree, wrong = ast.parse(text), []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "tuneparts":
            wrong.append(f"from {node.module} import {', '.join(a.name for a in node.names)}")
        elif isinstance(node, ast.Import):
            ours = [a for a in node.names if a.name.partition(".")[0] == "tuneparts"]
            wrong += [f"import {a.name} as {a.asname}" for a in ours if a.asname != "tp"]
            wrong += [f"import {a.name}" for a in ours if a.name != "tuneparts"]
        elif isinstance(node, ast.Attribute):
            match ast.unparse(node).split("."):
                case ["tp", name] if name not in tuneparts.__all__:
                    wrong.append(f"tp.{name}")
                case ["tp", home, name] if home in MODULES_FOR_USERS:
                    if name.startswith("_") or not hasattr(getattr(tuneparts, home), name):
                        wrong.append(f"tp.{home}.{name}")
    return wrong


def test_what_users_read_imports_the_package_alone() -> None:
    found = {place: wrong for place, text in shown() if (wrong := unknown_names(text))}
    assert found == {}


def test_a_deep_import_is_found() -> None:
    text = (
        "from tuneparts.nets import Mlp\nimport tuneparts.ray\nimport tuneparts as tp\ntp.nets.Mpl"
    )
    assert len(unknown_names(text)) == 4
    assert unknown_names("import tuneparts as tp\ntp.Search(net=tp.nets.Mlp())") == []


def test_the_top_has_at_most_sixty_names() -> None:
    names = set(tuneparts.__all__) - {"__version__"}
    assert len(names) <= 60
    assert names >= MODULES_FOR_USERS


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


def slugs(heading: str) -> set[str]:
    """The anchors of a heading: a forge's, and the site's, which joins hyphens."""
    plain = re.sub(r"[`*]|\]\([^)]*\)|!?\[", "", heading).strip().lower()
    forge = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
    return {forge, re.sub(r"-+", "-", forge)}


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose_of(path), re.MULTILINE)
    return {heading for text in headings for heading in slugs(text) if len(slugs(text)) == 1}


def test_every_anchor_leads_to_a_heading() -> None:
    """On a forge and in the site alike."""
    links = [
        (path, (path.parent / target if target else path).resolve(), anchor)
        for path in DOCUMENTS
        for target, hash_, anchor in (link.partition("#") for link in LINK.findall(prose_of(path)))
        if hash_ and not re.match(r"[a-z]+:", target)
    ]
    assert links
    broken = [(name_of(path), to.name, a) for path, to, a in links if a not in anchors(to)]
    assert broken == []


def test_an_anchor_is_a_heading_in_small_letters() -> None:
    assert slugs("2026-11-17: what `fit` costs, on two") == {"2026-11-17-what-fit-costs-on-two"}
    assert slugs("a - b") == {"a---b", "a-b"}


def test_the_readme_is_short_and_shows_a_report() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert text.count("\n") <= 180
    assert "docs/images/report.png" in text


def test_nothing_is_said_to_be_on_an_index() -> None:
    """Until it is published, it is installed from a checkout or a wheel."""
    named = [
        (name_of(path), found)
        for path in living()
        for found in re.findall(r"pip install[^`\n]*\btuneparts\b[^`\n]*", path.read_text("utf-8"))
        if ".whl" not in found
    ]
    assert named == []


def test_every_public_name_is_in_the_api_reference() -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    listed = {
        path.rpartition(".")[2]
        for names in re.findall(r"<!-- api: ([^>]*) -->", page)
        for path in names.split()
    }
    assert set(tuneparts.__all__) - listed - MODULES_FOR_USERS == {"__version__"}
    assert all(f"`{name}`" in page for name in tuneparts.__all__ if name != "__version__")


def test_every_setting_is_documented() -> None:
    read = set(
        re.findall(r"TUNEPARTS_\w+", (ROOT / "tuneparts" / "core" / "settings.py").read_text())
    )
    told = set(re.findall(r"^\| `(TUNEPARTS_\w+)`", (ROOT / "docs/settings.md").read_text(), re.M))
    assert read
    assert read - told == set()


def test_every_example_is_in_the_index() -> None:
    index = (ROOT / "examples" / "README.md").read_text("utf-8")
    files = [*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*/*.py")]
    names = [str(path.relative_to(ROOT / "examples")) for path in files if path.name[0] != "_"]
    assert [name for name in names if f"]({name})" not in index] == []


def script(name: str) -> types.ModuleType:
    """A module of docs/."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_results_page_is_made_from_what_is_released() -> None:
    """`python docs/results.py` writes it anew."""
    assert script("results").page() == (ROOT / "docs" / "results.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("said", "expected", "verdict"),
    [
        ("better", "better", "holds"),
        ("worse", "better", "does not hold"),
        ("equivalent within 0.01", "better", "does not hold"),
        ("equivalent within 0.01", "equivalent", "holds"),
        ("equivalent within 0.01", "not worse", "holds"),
        ("worse, by less than 0.01", "not worse", "does not hold"),
        ("worse, by less than 0.01", "equivalent", "holds"),
        ("better, by less than 0.01", "equivalent", "holds"),
        ("better, by less than 0.01", "better", "holds"),
        ("inconclusive", "equivalent", "inconclusive"),
        ("inconclusive", "not worse", "inconclusive"),
    ],
)
def test_a_claim_holds_only_where_its_comparison_says_so(
    said: str, expected: str, verdict: str
) -> None:
    assert script("results")._verdict(said, expected) == verdict


def test_figures_of_results_are_those_of_their_tables() -> None:
    """`python docs/plots.py` draws them anew."""
    figures = script("plots").figures()
    assert len(figures) > 5
    assert [path.name for path, drawn in figures.items() if path.read_text("utf-8") != drawn] == []


def test_tables_are_those_of_present_commands_or_say_that_they_are_not() -> None:
    from tuneparts.executors import place as width
    from tuneparts.search import load

    made = []
    for path in (ROOT / "docs" / "results.md", ROOT / "README.md"):
        text = path.read_text("utf-8")
        made += re.findall(r"search (\w+)` (as it was then )?\(digest (\w{12})", text)
        last = text[text.index("## Results") :] if path.name == "README.md" else text
        told = re.findall(r"^(?!#).*search \w+`.*$", last, re.MULTILINE)
        assert [line for line in told if "(digest " not in line] == []
    assert len(made) > 5
    # A window that follows the machine is part of the digest; tables are of two cores.
    found = {name: load.load(name, scale="cpu") for name, _, _ in made}
    place = Place("local", cpus=2)
    now = {name: width.fitted(one, place).digest for name, one in found.items()}
    assert [name for name, then, digest in made if (digest == now[name]) == bool(then)] == []


def sections(path: Path) -> dict[str, str]:
    """The text under each heading, up to the next, by the heading's anchor."""
    parts = re.split(r"^#+ (.*)$", path.read_text("utf-8"), flags=re.MULTILINE)
    return {
        a: text for head, text in zip(parts[1::2], parts[2::2], strict=True) for a in slugs(head)
    }


def unsourced(paragraph: str, folder: Path) -> list[str]:
    """Numbers with decimals that none of the sections has to which a paragraph links."""
    links = [link.split("#") for link in LINK.findall(paragraph) if "#" in link]
    told = "".join(sections(folder / path)[anchor] for path, anchor in links)
    numbers = re.findall(r"(?<![\w.])\d+\.\d+(?!\w)", paragraph)
    return [one for one in numbers if not re.search(rf"(?<![\d.]){re.escape(one)}(?!\d)", told)]


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "methods").glob("*.md")), ids=name_of)
def test_numbers_of_a_method_stand_where_its_page_says(page: Path) -> None:
    found = re.search(r"\*\*What we found\.\*\*.*?\n\n", page.read_text("utf-8"), re.DOTALL)
    assert found is not None or page.name == "index.md"
    if found is not None:
        assert "Source: " in found[0]
        assert unsourced(found[0], page.parent) == []


def test_a_number_that_stands_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "log.md").write_text("# log\n\n## one thing\n\n0.95 and 1.2\n\n## other\n\n0.7\n")
    text = "It has 0.95 and 0.7, of 1.25. Source: [log](log.md#one-thing)."
    assert unsourced(text, tmp_path) == ["0.7", "1.25"]


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
        "tuneparts.results": tmp_path / "results",
    }.items():
        if module.startswith(room):  # a store that is there already saves seconds
            shutil.copy(request.getfixturevalue("template_store"), place / "mlflow.db")
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path / "results"))
    result = doctest.testmod(import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
