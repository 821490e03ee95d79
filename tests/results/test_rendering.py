"""Tables on terminals of any width, in Markdown, LaTeX and HTML: nothing is ever cut."""

import io
import re

import pytest
from rich.console import Console

from tuneparts.results.rendering import Table, _to_html, _to_latex, show, to_markdown
from tuneparts.results.run_data import RunData
from tuneparts.search.card import ArmCard

LONG = ("partitioned_retrained", "random_from_a_wide_space", "validation_of_the_whole_net")
HYPERS = ("rotation", "translate_x", "translate_y", "scale_x", "scale_y", "shear")


def shown(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(console, table)
    return console.file.getvalue()


def left_out(text: str) -> set[str]:
    """Headers that are named as left out."""
    _, _, rest = text.partition("Left out for width: ")
    return set(" ".join(rest.split(".\n")[0].split()).split(", ")) if rest else set()


def assert_whole(table: Table, width: int) -> None:
    """Every line fits, and every cell is there whole or its column is named as left out."""
    text = shown(table, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    missing = left_out(text)
    assert missing <= {column.header for column in table.columns}
    for column in table.columns:
        if column.header in missing:
            continue
        for cell in column.cells:
            found = cell in text
            if column.wraps_at:
                found = all(word in text for word in cell.split())
            assert found, (column.header, cell)
        assert all(word in text for word in column.header.split())


@pytest.fixture
def wide(trials, metadata):
    """Tables with long names of arms and many hypers."""
    names = {"none": LONG[0], "random": LONG[1], "partitioned": LONG[2]}
    arms = tuple(
        ArmCard(names[arm.name], arm.method, arm.trials_per_seed, arm.seeds)
        for arm in metadata.arms[:3]
    )
    told = type(metadata)(**{**metadata.__dict__, "arms": arms})
    own = trials[trials["arm"] != "retrained"].replace({"arm": names})
    own = own.assign(**{f"hyper/{name}": own["hyper/rotation"] for name in HYPERS})
    return RunData(told, own, own.iloc[:0]).tables


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_and_numbers_of_reports_are_never_cut(wide, width) -> None:
    for table in wide:
        assert_whole(table, width)
    hypers = shown(wide[1], width)
    assert left_out(hypers) == set()
    for name in HYPERS:
        assert all(word in hypers for word in name.split("_"))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_paths_and_sentences_of_listings_are_never_cut(width) -> None:
    path = "/data/" + "a_long_folder/" * 2 + "cifar-10-batches-bin"
    rows = [
        ["cifar10", path, "50,000", "3x32x32", "Download it with `tuneparts data --download`."],
        ["digits_of_a_long_name", "-", "1,500", "1x8x8", "It comes with scikit-learn."],
    ]
    headers = ["set", "found in", "train", "shape", "to get it"]
    assert_whole(Table.of_rows(headers, rows, numbers=["train"], prose=["to get it"]), width)


def test_sentences_are_not_squeezed_to_a_few_letters() -> None:
    sentence = "This sentence is long enough to be broken over several lines of a narrow column."
    rows = [["a" * 20, "b" * 30, sentence]]
    text = shown(Table.of_rows(["set", "found in", "to get it"], rows, prose=["to get it"]), 80)
    (line,) = [line for line in text.splitlines() if "This sentence" in line]
    assert len(line[line.index("This") :].strip()) > 20


@pytest.mark.parametrize("width", [20, 40])
def test_a_name_too_long_for_two_columns_turns_rows_into_lists(width) -> None:
    name, value = "n" * 15, "0.9123 ± 0.0123"
    text = shown(Table.of_rows(["arm", "accuracy"], [[name, value]]), width)
    assert "…" not in text
    assert value.split(maxsplit=1)[0] in text
    assert "".join(text.split()).count("n" * 11) == 1


def test_an_empty_table_is_a_header() -> None:
    assert "arm" in shown(Table.of_rows(["arm", "trials"], []), 80)


def test_every_rendering_carries_provenance_and_numbers(trials, steps, metadata) -> None:
    run_data = RunData(metadata, trials, steps)
    mean = f"{run_data.summary['test/accuracy'][2]:.4f}"
    table = run_data.tables[0]
    html = _to_html(table).replace("&nbsp;", " ")
    for text in (to_markdown([table]), _to_latex([table]), html, shown(table, 250)):
        assert mean in text
        assert "1 failed, 1 missing" in text
        for mark in (metadata.parent_run_id, metadata.digest, metadata.commit):
            assert mark in text


@pytest.mark.parametrize("width", [80, 100, 130])
def test_narrow_terminal_drops_details_says_which_and_clips_nothing(
    trials, steps, metadata, width
) -> None:
    run_data = RunData(metadata, trials, steps)
    table = run_data.tables[0]
    text = shown(table, width)
    assert_whole(table, width)
    assert "test brier ↓" in left_out(text)
    for row in run_data.summary.to_dict("records"):
        assert re.search(rf"{row['arm']} +{row['test/accuracy']:.4f} ± ", text)


def test_markup_in_names_stays_text() -> None:
    name = "[red]a|b_c & 5%[/red]"
    table = Table.of_rows(["arm", "trials"], [[name, 1]])
    assert name in shown(table, 80)
    header, _, row = to_markdown([table]).splitlines()
    unescaped = re.compile(r"(?<!\\)\|")
    assert len(unescaped.findall(row)) == len(unescaped.findall(header))
    assert r"a|b\_c \& 5\%" in _to_latex([table])
    assert "<img" not in _to_html(Table.of_rows(["<img>"], [["<img>"]]))
