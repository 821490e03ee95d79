"""Builds the site: `make docs` writes it to `site/`, and fails for a warning or a broken link.

Documents stand where a reader of the repository looks for them: README.md, SECURITY.md, `docs/`.
They are copied to `build/docs`; a link that would leave them leads to a page with the text of that
file, so that the site needs neither the repository nor a network. `mkdocs.yml` has the order of the
pages; a document that it does not name stands under "More".
"""

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
STAGED = BUILD / "docs"
SITE = ROOT / "site"
PAGES = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CHANGELOG.md": "changelog.md",
    "searches/README.md": "searches.md",
    "examples/README.md": "examples.md",
    "docs/decisions": "decisions.md",
}
"""Documents outside of `docs/`, and what stands for a folder: where each is in the site."""
PARTS = ["examples/*.py", "examples/outsider/*.py", "searches/*.py", "searches/studies/*.py"]
"""Files that are pages of the site, whether something links to them or not."""

FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
API = re.compile(r"<!-- api: ([\w.\s]+?) -->")
OUTSIDE = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?https?:"
    r"|<link\b(?=[^>]*\brel=\"?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=\"?https?:"
)
"""What a browser would fetch from elsewhere when it opens a page."""


class Stage:
    """Copies documents to `build/docs`, and remembers which other files they link to."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()

    def place(self, path: str) -> str:
        """Where in the site a file or folder of the repository is shown."""
        if path in PAGES:
            return PAGES[path]
        if path.startswith("docs/") and (ROOT / path).is_file():
            return path.removeprefix("docs/")
        if (ROOT / path).is_dir() and f"{path}/README.md" in PAGES:
            return PAGES[f"{path}/README.md"]
        self.wanted.add(path)
        return f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.md"

    def rewritten(self, text: str, source: str) -> str:
        """A document's text with its links as they must be in the site."""
        here = posixpath.dirname(self.place(source))
        folder = posixpath.dirname(source)

        def link(match: re.Match[str]) -> str:
            path, hash_, anchor = match[1].partition("#")
            if re.match(r"[a-z]+:", match[1]) or not path:
                return match[0]
            target = posixpath.normpath(posixpath.join(folder, path))
            if not (ROOT / target).exists():
                raise SystemExit(f"{source}: the link `{match[1]}` leads nowhere")
            return f"]({posixpath.relpath(self.place(target), here or '.')}{hash_}{anchor})"

        done, last = [], 0
        for fence in FENCE.finditer(text):
            done.append(LINK.sub(link, text[last : fence.start()]))
            language = (fence[2].split() or ["text"])[0]  # `python registered` is for the tests
            done.append(f"{fence[1]}```{language}\n{fence[3]}{fence[1]}```")
            last = fence.end()
        done.append(LINK.sub(link, text[last:]))
        return API.sub(lambda found: reference(found[1].split()), "".join(done))

    def write(self, place: str, text: str) -> None:
        """One page of the site."""
        path = STAGED / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def documents(self) -> None:
        """Every document and picture."""
        sources = [path for path in PAGES if (ROOT / path).is_file()]
        sources += [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md"))]
        for source in sources:
            self.write(self.place(source), self.rewritten((ROOT / source).read_text(), source))
        self.write("decisions.md", decisions())
        for kind in ("svg", "png"):
            for path in ROOT.glob(f"docs/images/**/*.{kind}"):
                copy = STAGED / path.relative_to(ROOT / "docs")
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)

    def files(self) -> None:
        """A page for every file that a document links to."""
        parts = {str(path.relative_to(ROOT)) for pattern in PARTS for path in ROOT.glob(pattern)}
        for name in sorted(self.wanted | parts):
            path = ROOT / name
            if path.is_dir():
                names = sorted(child.name for child in path.iterdir() if child.name[0] not in "._")
                body = "\n".join(f"- `{child}`" for child in names)
            else:
                body = f"````{path.suffix[1:] or 'text'}\n{path.read_text('utf-8')}````"
            self.write(self.place(name), f"# {name}\n\n{body}\n")


def reference(names: list[str]) -> str:
    """What mkdocstrings makes the reference of these names from."""
    return "\n\n".join(f"::: {name}" for name in names)


def decisions() -> str:
    """The list of decisions, by number."""
    rows = []
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ")
        rows.append(f"- [{title}](decisions/{path.name})")
    return "# Decisions\n\nWhat would be costly to undo, and why it is so.\n\n" + "\n".join(rows)


def pages_in(nav: Any) -> set[str]:
    """All pages that a tree of `nav` names."""
    if isinstance(nav, str):
        return {nav}
    children = nav.values() if isinstance(nav, dict) else nav
    return set().union(*map(pages_in, children))


def configured() -> Path:
    """The configuration with paths of this machine, and a place for pages that it does not name."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    there = {str(path.relative_to(STAGED)) for path in STAGED.rglob("*.md")}
    there = {page for page in there if not page.startswith(("source/", "decisions/0"))}
    if missing := sorted(pages_in(config["nav"]) - there):
        raise SystemExit(f"mkdocs.yml names pages that are not there: {', '.join(missing)}")
    if more := sorted(there - pages_in(config["nav"])):
        config["nav"].append({"More": more})
    config["docs_dir"], config["site_dir"] = "docs", "site"  # inside the folder of this file
    (strings,) = [plugin for plugin in config["plugins"] if "mkdocstrings" in plugin]
    python = strings["mkdocstrings"]["handlers"]["python"]
    python["paths"] = [str(ROOT)]
    python["options"]["extensions"] = [f"{ROOT / 'docs' / 'docstrings.py'}:ExampleSections"]
    path = BUILD / "mkdocs.yml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    return path


def fetched() -> list[str]:
    """Pages that would fetch something from a network when they are opened."""
    return [
        f"{page.relative_to(SITE)}: {found[0]}"
        for page in sorted(SITE.rglob("*.html"))
        if (found := OUTSIDE.search(page.read_text("utf-8")))
    ]


def main() -> None:
    """Stage, build, and look at what was built."""
    for folder in (STAGED, BUILD / "site", SITE):
        shutil.rmtree(folder, ignore_errors=True)
    stage = Stage()
    stage.documents()
    stage.files()
    tool = Path(sys.executable).parent / "zensical"
    built = subprocess.run([tool, "build", "--strict", "--clean", "-f", configured()], check=False)
    if built.returncode:
        raise SystemExit(built.returncode)
    shutil.move(BUILD / "site", SITE)
    if outside := fetched():
        raise SystemExit("pages need a network:\n" + "\n".join(outside))
    print(f"{len(list(SITE.rglob('*.html')))} pages: site/index.html")


if __name__ == "__main__":
    main()
