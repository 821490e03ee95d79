"""SECURITY.md claims what a test shows."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "SECURITY.md").read_text("utf-8")))
    files = (ROOT / "tests").rglob("test_*.py")
    there = {
        name
        for path in files
        for name in re.findall(r"^\s*def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)
    }
    assert len(named) > 20
    assert named - there == set()


def test_every_claim_of_the_table_names_one() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    table = text.partition("## What is not\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 8
    assert [row for row in rows if "`test_" not in row.rsplit("|", 2)[1]] == []
