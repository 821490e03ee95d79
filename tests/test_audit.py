"""The vulnerability check: fails for what can be mended, never for a service that is away."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

AUDIT = Path(__file__).parent.parent / ".ci" / "audit"


def audit(folder: Path, answer: str | None, *, can_install: bool = False) -> tuple[int, str]:
    """Run the script with a pip-audit that answers this; None for one that is not there."""
    python = folder / "python"
    refuse = f'#!/bin/sh\nif [ "$1" = -m ]; then exit {0 if can_install else 1}; fi\n'
    python.write_text(refuse + f'exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    if answer is not None:
        (folder / "answer").write_text(answer)
        (folder / "pip-audit").write_text(f"#!/bin/sh\ncat {folder}/answer\nexit 1\n")
        (folder / "pip-audit").chmod(0o755)
    done = subprocess.run([AUDIT, folder], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def packages(*fixes: list[str]) -> str:
    vulns = [{"id": f"V-{number}", "fix_versions": fix} for number, fix in enumerate(fixes)]
    return json.dumps({"dependencies": [{"name": "x", "version": "1", "vulns": vulns}]})


def test_what_can_be_mended_fails(tmp_path) -> None:
    assert audit(tmp_path, packages(["2"], [])) == (
        1,
        "audit: x 1: V-0 (fixed in 2)\naudit: x 1: V-1 (fixed in no version yet)\n"
        "audit: 1 packages, 2 known vulnerabilities\n",
    )


def test_what_cannot_be_mended_is_told(tmp_path) -> None:
    status, said = audit(tmp_path, packages([]))
    assert status == 0
    assert "V-0" in said


@pytest.mark.parametrize("answer", ["", "Traceback: ConnectionError", "{}"])
def test_a_service_that_is_away_is_no_failure(tmp_path, answer: str) -> None:
    status, said = audit(tmp_path, answer)
    assert status == 0
    assert "did not answer" in said


def test_an_index_without_the_tool_is_no_failure(tmp_path) -> None:
    status, said = audit(tmp_path, None)
    assert status == 0
    assert "skipped, the index" in said
