"""The vulnerability check: only a service that is away is no failure."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

AUDIT = Path(__file__).parent.parent / ".ci" / "audit"


def audit(folder: Path, answer: str, *, error: str = "", required: bool = False) -> tuple[int, str]:
    """Run the script with a pip-audit that prints this to stdout and stderr."""
    tool = folder / "tool" / "bin"
    tool.mkdir(parents=True)
    (folder / "answer").write_text(answer)
    (folder / "error").write_text(error)
    (tool / "pip-audit").write_text(
        f"#!/bin/sh\ncat {folder}/answer\ncat {folder}/error >&2\nexit 1\n"
    )
    (tool / "pip-audit").chmod(0o755)
    environment = {**os.environ, "AUDIT_TOOL": str(tool.parent), "AUDIT": "required" * required}
    done = subprocess.run(
        [AUDIT, Path(sys.executable).parent],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    return done.returncode, done.stdout + done.stderr


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


AWAY = "requests.exceptions.ConnectionError: Max retries exceeded"


def test_a_service_that_is_away_is_no_failure_unless_it_is_required(tmp_path) -> None:
    status, said = audit(tmp_path / "a", "", error=AWAY)
    assert status == 0
    assert "did not answer" in said
    assert audit(tmp_path / "b", "", error=AWAY, required=True)[0] == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("", "Traceback: KeyError"),
        ("", ""),
        ("no JSON", ""),
        ("{}", ""),
        ('{"dependencies": []}', ""),
    ],
)
def test_a_tool_that_fails_fails_the_audit(tmp_path, answer: str, error: str) -> None:
    assert audit(tmp_path, answer, error=error)[0] == 1
