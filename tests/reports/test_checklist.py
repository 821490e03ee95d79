"""The checklist is filled in from the run; costs are shown in seconds too, with the hardware."""

from dataclasses import replace
from pathlib import Path

from tuneparts import environment
from tuneparts.reports import checklist
from tuneparts.reports.figures.accuracy import accuracy
from tuneparts.reports.figures.drawing import Drawing
from tuneparts.reports.page import page
from tuneparts.reports.run_data import RunData


def test_every_question_has_an_answer(trials, steps, metadata) -> None:
    space = "`hypers.affine.rotation` from 0 to 3"
    told = replace(
        metadata,
        arms=tuple(replace(arm, space=space * (arm.name == "random")) for arm in metadata.arms),
        environment={"machine": "a slow one", "repository": "mine at 123, clean"},
        data_draws="drawn",
    )
    data = RunData(told, trials, steps)
    found = checklist.items(data)
    assert all(found.values())
    assert found["Search spaces"] == f"random: {space}"
    assert found["Hardware"] == "a slow one"
    assert "random 8 x 400" in found["Budget of each arm (trials a replicate x passes)"]
    assert found["Seeds of the replicates"] == "0, 1, 2 (all arms)"
    assert "1 failed" in found["Trials"]
    assert "draws its data anew" in found["What replicates vary"]
    assert found["All packages"] == checklist.UNKNOWN
    assert "Reproducibility checklist" in page(data, {})
    assert "- **Hardware.** a slow one" in checklist.to_markdown(data)
    assert any("Seconds are those of a slow one" in note for note in data.tables[0].notes)


def test_surroundings_in_words() -> None:
    card = {
        "machine": "m",
        "packages": ["a==1", "b==2"],
        "repository": {"name": "mine", "commit": "1", "dirty": True},
    }
    assert checklist.environment(card) == {
        "machine": "m",
        "packages": "a==1, b==2",
        "repository": "mine at 1, with changes that are not committed",
    }
    assert checklist.environment({"repository": None}) == {"repository": "none"}
    assert checklist.environment({}) == {}  # of an earlier release


def test_packages_and_repository(tmp_path: Path) -> None:
    assert any(one.lower().startswith("numpy==") for one in environment.packages())
    assert environment.repository(tmp_path) is None


def test_scores_against_seconds(trials, steps, metadata) -> None:
    drawing = accuracy(RunData(metadata, trials, steps), "test/accuracy", "cost/seconds")
    assert isinstance(drawing, Drawing)
    assert "seconds" in drawing.title
    by_passes = accuracy(RunData(metadata, trials, steps))
    assert isinstance(by_passes, Drawing)
    one, other = (d.data.groupby("arm")["mean"].last().to_dict() for d in (drawing, by_passes))
    assert one == other  # the end is the same, only the axis differs
