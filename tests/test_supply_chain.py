"""What is installed is pinned, and pinned by hash where one hash is enough."""

import re
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOT_PINNED = {"tuneparts", "pip"}
"""This project itself, and what a virtual environment brings along."""


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {plain(name): version for name, version in pairs}


def test_every_installed_package_is_pinned_at_its_version() -> None:
    installed = {
        plain(found.metadata["Name"]): found.version.partition("+")[0]
        # Not all of `sys.path`: Ray carries packages of its own there.
        for found in metadata.distributions(path=[sysconfig.get_path("purelib")])
    }
    wrong = {
        name: version
        for name, version in installed.items()
        if name not in NOT_PINNED and pins().get(name) != version
    }
    assert wrong == {}, "run `pip freeze` in a fresh environment, and write constraints.txt anew"


def test_every_pin_but_torch_has_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text()
    locked = dict(
        re.findall(r"^([\w.-]+)==(\S+?)(?: ; .*)? \\\n    --hash=sha256:", text, re.MULTILINE)
    )
    found = {plain(name): version for name, version in locked.items()}
    assert found == {name: pin for name, pin in pins().items() if name != "torch"}


def test_what_builds_the_wheel_is_pinned() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert all("==" in requirement for requirement in build["requires"])


def test_the_audit_and_its_tool_are_pinned_and_apart() -> None:
    script = (ROOT / ".ci" / "audit").read_text()
    assert re.search(r'version="pip-audit==[\d.]+"', script)
    assert "pip-audit" not in {plain(found.metadata["Name"]) for found in metadata.distributions()}
