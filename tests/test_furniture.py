"""What forges and indexes read: citation, workflows, templates, hooks, the site's configuration."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import tuneparts

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text("utf-8"))
    return found


def test_the_citation_has_this_version_and_the_three_papers() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"] == tuneparts.__version__
    assert citation["license"] == PROJECT["license"]
    first = {paper["authors"][0]["family-names"] for paper in citation["references"]}
    assert first == {"Mlodozeniec", "Teterwak", "Subia-Waud"}
    for paper in citation["references"]:
        assert {"type", "title", "authors", "year", "collection-title"} <= set(paper)
        assert re.fullmatch(r"arXiv:\d{4}\.\d{5}", paper["identifiers"][0]["value"])


def test_the_package_says_who_for_whom_and_since_which_python() -> None:
    assert PROJECT["authors"]
    assert PROJECT["keywords"]
    versions = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c}
    assert versions == {"3.11", "3.12", "3.13"}
    assert PROJECT["requires-python"] == ">=3.11,<3.14"


def test_a_release_is_built_and_tested_before_it_is_published() -> None:
    workflow = read(".github/workflows/release.yml")
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML reads the key `on` as true
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    runs = " ".join(step.get("run", "") for step in build["steps"])
    assert all(word in runs for word in (".ci/run", "-m build", "twine check", "dist/*.whl"))
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}  # trusted publishing: no token is kept
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()


@pytest.mark.parametrize("name", ["bug", "result", "idea"])
def test_issue_templates_have_what_a_forge_asks_for(name: str) -> None:
    template = read(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= set(template)
    identifiers = [part["id"] for part in template["body"]]
    assert len(identifiers) == len(set(identifiers))


def test_hooks_run_tools_that_make_install_installs() -> None:
    lock = (ROOT / "constraints.txt").read_text()
    (local,) = read(".pre-commit-config.yaml")["repos"]
    for hook in local["hooks"]:
        tool = hook["entry"].split()[0]
        assert tool == "make" or re.search(rf"^{Path(tool).name}([-_]py)?==", lock, re.MULTILINE)


def test_the_image_is_built_from_the_wheel() -> None:
    text = (ROOT / "deploy" / "image" / "Dockerfile").read_text()
    assert "COPY dist/*.whl" in text
    assert "USER tuneparts" in text


def test_what_builds_the_site_is_pinned_and_apart() -> None:
    lines = (ROOT / "docs" / "requirements.txt").read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert any(line.startswith("zensical==") for line in lines)
    assert "zensical" not in (ROOT / "constraints.txt").read_text()


def test_the_site_names_pages_that_are_there() -> None:
    def pages(nav: Any) -> set[str]:
        if isinstance(nav, str):
            return {nav}
        return set().union(*map(pages, nav.values() if isinstance(nav, dict) else nav))

    builder = (ROOT / "docs" / "site.py").read_text()
    staged = set(re.findall(r'^    "[^"]+": "([\w./-]+\.md)",$', builder, re.MULTILINE))
    there = {str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")}
    assert pages(read("mkdocs.yml")["nav"]) - staged == pages(read("mkdocs.yml")["nav"]) & there
