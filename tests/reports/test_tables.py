import io
import re
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

from tuneparts.reports import tables
from tuneparts.reports.metadata import ArmMetadata, ReportMetadata
from tuneparts.reports.select import summarise


@pytest.fixture
def summary(trials, metadata):
    return summarise(trials, metadata)


@pytest.fixture
def built(summary, metadata):
    return tables.build(summary, metadata)


def cells(table, header):
    (column,) = [c for c in table.columns if c.header.startswith(header)]
    return [cell.text for cell in column.cells]


def shown(rich_tables, width):
    console = Console(file=io.StringIO(), width=width)
    for table in rich_tables:
        console.print(table)
    return console.file.getvalue()


def test_decimals_and_error_come_from_the_schema():
    assert tables.spread(0.90617, 0.00444, 4) == "0.9062 ± 0.0044"
    assert tables.spread(12345.0, float("nan"), 0) == "12,345"
    assert tables.spread(float("nan"), float("nan"), 4) == tables.NOTHING


def test_label_says_unit_once():
    assert tables.label("test/nll", arrow=True) == "test nll (nats) ↓"
    assert tables.label("hyper/rotation", arrow=True) == "rotation (rad)"
    assert tables.label("cost/passes") == "passes"


def test_failures_are_shown(built):
    assert cells(built[0], "trials")[1] == "22/24 (1 failed, 1 missing)"
    assert any("loss was nan at pass 160" in note for note in built[0].notes)


def test_an_arm_that_only_failed_says_so_in_the_place_of_its_score(trials, metadata):
    trials.loc[trials["arm"] == "none", ["outcome", "error"]] = ["failed", "out of memory"]
    table = tables.build(summarise(trials, metadata), metadata)[0]
    assert cells(table, "test accuracy")[0] == "failed: 3/3"
    assert cells(table, "seeds")[0] == "0/3"
    assert any("out of memory" in note for note in table.notes)


def test_best_is_bold_only_for_test_scores(built, summary):
    bold = {c.header for t in built for c in t.columns if any(cell.is_best for cell in c.cells)}
    assert bold == {"test accuracy ↑", "test nll (nats) ↓", "test ece ↓", "test brier ↓"}
    column = built[0].columns[1]
    best = summary["test/accuracy"].argmax()
    assert [cell.is_best for cell in column.cells] == [i == best for i in range(4)]


def test_arms_that_print_alike_are_bold_alike():
    arms = tuple(ArmMetadata(name, "m", 1, (0,)) for name in "ab")
    rows = [
        {"arm": a, "seed": 0, "index": 0, "outcome": "finished", "error": "", "test/accuracy": v}
        for a, v in (("a", 0.90001), ("b", 0.90002))
    ]
    metadata = ReportMetadata("s", "q", arms)
    (table,) = tables.build(summarise(pd.DataFrame(rows), metadata), metadata)
    assert [cell.is_best for cell in table.columns[1].cells] == [True, True]


def test_leader_columns_only_where_an_arm_follows(trials, metadata, built):
    assert cells(built[0], "passes incl")[-1] == "800"
    alone = replace(metadata, arms=metadata.arms[:3])
    table = tables.build(summarise(trials[trials["arm"] != "retrained"], alone), alone)[0]
    assert not [c for c in table.columns if "leader" in c.header]


def test_every_rendering_carries_provenance_and_numbers(built, summary, metadata):
    mean = f"{summary['test/accuracy'][2]:.4f}"
    texts = [
        tables.to_markdown(built),
        tables.to_latex(built),
        shown(tables.to_rich(built), 250),
    ]
    for text in texts:
        assert mean in text
        assert "1 failed, 1 missing" in text
        for mark in (metadata.parent_run_id, metadata.digest, metadata.commit):
            assert mark in text


def test_csv_reads_back_at_full_precision(summary, metadata):
    back = pd.read_csv(io.StringIO(tables.to_csv(summary, metadata)))
    assert list(back["test/accuracy"]) == list(summary["test/accuracy"])
    assert set(back["digest"]) == {metadata.digest}


@pytest.mark.parametrize("width", [80, 100, 130])
def test_narrow_terminal_drops_details_says_which_and_clips_nothing(built, summary, width):
    text = shown(tables.to_rich(built[:1], width), width)
    table, _, rest = text.partition("Left out for width: ")
    assert "brier" not in table
    assert "brier" in rest
    assert "…" not in text
    left_out = " ".join(rest.split(".\n")[0].split()).split(", ")
    assert set(left_out) < {column.header for column in built[0].columns}
    line = next(line for line in table.splitlines() if line.strip().startswith("none"))
    assert len(re.split(r" {2,}", line.strip())) == len(built[0].columns) - len(left_out)
    for row in summary.to_dict("records"):
        cell = tables.spread(row["test/accuracy"], row["test/accuracy:se"], 4)
        assert re.search(rf"{row['arm']} +{cell}", table)


def test_markup_in_names_stays_text(trials, metadata):
    name = "[red]a|b_c & 5%[/red]"
    arms = (replace(metadata.arms[0], name=name), *metadata.arms[1:])
    hostile = replace(metadata, arms=arms)
    built = tables.build(summarise(trials.replace({"arm": {"none": name}}), hostile), hostile)
    assert name in shown(tables.to_rich(built), 300)
    lines = tables.to_markdown(built).splitlines()
    header, row = lines[2], next(line for line in lines if "red" in line)
    unescaped = re.compile(r"(?<!\\)\|")
    assert len(unescaped.findall(row)) == len(unescaped.findall(header))
    assert r"a|b\_c \& 5\%" in tables.to_latex(built)


def test_families_of_hypers_stay_in_the_csv(trials, metadata):
    trials["hyper/keep.0"] = 0.5
    trials["hyper/keep.1"] = 0.7
    summary = summarise(trials, metadata)
    table = tables.build(summary, metadata)[1]
    assert [c.header for c in table.columns] == ["arm", "rotation (rad)"]
    assert "2 values" in table.notes[0]
    assert "hyper/keep.1" in tables.to_csv(summary, metadata)


def test_corrupted_scores_and_sizes_stand_beside_test_scores(trials, metadata):
    trials["corrupted/nll"] = trials["test/nll"] + 1
    trials["size/parameters"] = 1234.0
    table = tables.build(summarise(trials, metadata), metadata)[0]
    names = [column.header for column in table.columns]
    assert "corrupted nll (nats) ↓" in names
    sizes = next(column for column in table.columns if "parameters" in column.header)
    assert not any(cell.is_best for cell in sizes.cells)
