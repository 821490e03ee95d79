"""What a run records of its surroundings."""

from pathlib import Path

from tuneparts.core import environment


def test_packages_and_repository(tmp_path: Path) -> None:
    assert any(one.lower().startswith("numpy==") for one in environment.packages())
    assert environment.repository(tmp_path) is None
