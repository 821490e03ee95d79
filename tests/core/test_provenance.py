"""What a run records of its surroundings."""

import os
from pathlib import Path

import pytest

from tuneparts.core import provenance
from tuneparts.core.provenance import usable_cpus


def test_packages_and_repository(tmp_path: Path) -> None:
    assert any(one.lower().startswith("numpy==") for one in provenance.packages())
    assert provenance.repository(tmp_path) is None


@pytest.fixture
def eight(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu.max": "9900000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu.max": "what is this"}, 8),
    ],
)
def test_the_quota_of_a_container_counts(eight, tmp_path: Path, files, expected: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cpus(tmp_path) == expected


def test_affinity_counts_and_not_the_machine(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert usable_cpus(tmp_path) == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cpus(tmp_path) == (os.cpu_count() or 1)
