"""The results of a run as a few small files that anyone can keep, read and check.

`export --to results` writes them: the resolved search, one row per trial, the steps where they are
small, and where all of it comes from. Tables, figures and verdicts are made from these files alone,
without the journal, the checkpoints or MLflow.

What is the same in all trials of each arm is written once, into `constants.json`, and a row of
steps names its trial and nothing else of it; reading puts both back.
"""

import io
import json
import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from tuneparts.core import atomic, redaction, settings
from tuneparts.core.errors import DataError, DataMissingError
from tuneparts.results.metadata import ReportMetadata
from tuneparts.results.results import Results
from tuneparts.search import runs
from tuneparts.search.frames import DRAWN_COLUMNS, SCHEDULE_COLUMNS, STEP_COLUMNS

if TYPE_CHECKING:
    from tuneparts.results.run_data import RunData

MOST_BYTES = 450_000
"""Size up to which steps are written, as many as fit: see `_steps`."""
_PROVENANCE = (
    "created", "digest", "command", "commit", "versions", "machine", "packages", "repository",
    "history",
)  # fmt: skip
_EMPTY = {"steps": list(STEP_COLUMNS), "schedules": SCHEDULE_COLUMNS, "drawn": DRAWN_COLUMNS}
_TEXT = {"trial", "arm", "outcome", "error", "metric", "path", "trained_as", "name"}
"""Columns that are text even where they are empty."""
_TIMES = ("start", "end")
_OF_TRIAL = ["arm", "seed", "index"]
"""What a row of another frame repeats of its trial."""


class _Constants(TypedDict):
    """What trials have in common."""

    columns: list[str]
    """All columns of the trials, in order."""
    arms: dict[str, dict[str, str]]
    """By arm and column; what is empty is left out."""


def is_published(name: str | Path) -> bool:
    """Whether a path leads to such files."""
    return all((Path(name) / file).is_file() for file in ("metadata.json", "trials.csv"))


def write(results: Results, folder: Path) -> list[Path]:
    """Write the results of a run into a folder; what it holds of earlier ones is replaced.

    Returns:
        What was written.
    """
    data, card, redactor = results.data, results.run.card, redaction.of_process()
    tree = {name: card[name] for name in _PROVENANCE if name in card}
    if "history" in tree:  # the final search holds what it was before, the card what is as it was
        tree["history"] = [
            {k: v for k, v in step.items() if k not in ("before", "user") and tree.get(k) != v}
            for step in tree["history"]
        ]
    trials, constants = _without_constants(data.trials.drop(columns="run_id"))
    texts = {
        "metadata.json": data.metadata.to_json(),
        "search.json": _json(redactor.tree(card["search"])),
        "provenance.json": _json(redactor.tree({"run": results.run.name, **tree})),
        "constants.json": _json(constants),
        "trials.csv": _csv(trials),
    }
    frames = {"steps": _steps(data), "schedules": data.schedules, "drawn": data.drawn}
    for name, frame in frames.items():
        text = _csv(frame.drop(columns=_OF_TRIAL))
        if len(frame) and len(text) <= MOST_BYTES:
            texts[f"{name}.csv"] = text
    for name in frames:
        (folder / f"{name}.csv").unlink(missing_ok=True)
    for name, text in texts.items():
        atomic.write_text(folder / name, text)
    return [folder / name for name in texts]


def _steps(data: "RunData") -> pd.DataFrame:
    """As many steps as fit.

    All; or those of selected trials, from which figures are drawn; or scores and costs of all
    trials; or the same of selected ones.
    """
    steps = data.steps
    chosen = steps["trial"].isin(data.selected["trial"])
    scores = {data.answer_metric, data.metadata.metric, "cost/weight_steps", "cost/seconds"}
    is_score = steps["metric"].isin(scores)  # passes are the step itself
    for found in (steps, steps[chosen], steps[is_score]):
        if len(_csv(found.drop(columns=_OF_TRIAL))) <= MOST_BYTES:
            return found
    return steps[is_score & chosen]


def _without_constants(trials: pd.DataFrame) -> tuple[pd.DataFrame, _Constants]:
    """The columns that vary within an arm as text, and what the others are in each."""
    text = _as_text(_csv(trials))
    columns = [str(column) for column in text]
    free = [column for column in columns if column not in ("trial", *_OF_TRIAL)]
    counts = text.groupby("arm")[free].nunique().max()
    held = [column for column in free if counts[column] <= 1]
    arms = {}
    for row in text.drop_duplicates("arm")[["arm", *held]].to_dict("records"):
        arms[str(row["arm"])] = {column: row[column] for column in held if row[column]}
    return text.drop(columns=held), _Constants(columns=columns, arms=arms)


def _with_constants(text: pd.DataFrame, constants: _Constants) -> pd.DataFrame:
    """The trials as they were before `_without_constants`."""
    held = {
        column: [constants["arms"][arm].get(column, "") for arm in text["arm"]]
        for column in constants["columns"]
        if column not in text
    }
    return text.assign(**held)[constants["columns"]]


def _as_text(csv: str | Path) -> pd.DataFrame:
    source = csv if isinstance(csv, Path) else io.StringIO(csv)
    return pd.read_csv(source, dtype=str, keep_default_na=False)


class Published(Results):
    """What a run has found, read from the files that `write` wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def run(self) -> runs.Run:  # type: ignore[override]
        """Published results have no run.

        Raises:
            DataMissingError: Always.
        """
        raise DataMissingError(
            f"{self.folder} holds results only: no journal, checkpoints or nets. Ask whoever ran "
            "it, or run its search again; `search.json` has it."
        )

    @property
    def search_facts(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / "search.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{self.folder} holds no search that can be read: {error}") from error
        return found

    @cached_property
    def data(self) -> "RunData":
        """Everything that tables, figures and the page are made from.

        Raises:
            DataError: A file is damaged, or is none of ours.
        """
        from tuneparts.results.run_data import RunData

        try:
            found = ReportMetadata.from_json((self.folder / "metadata.json").read_text("utf-8"))
            texts = self._texts()
            frames = {name: _typed_frame(text) for name, text in texts.items()}
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{self.folder} holds no results that can be read: {error}") from error
        return RunData(
            found,
            frames["trials"].assign(run_id=""),
            frames["steps"],
            schedules=frames["schedules"],
            drawn=frames["drawn"],
            sample_grids_note="Published results hold no images.",
        )

    def write_report(self) -> dict[str, Path]:
        """Write page, tables and figures into the results folder of this machine."""
        from tuneparts.results import static_export
        from tuneparts.results.write import write as write_to

        folder = settings.current().results_dir / "published" / self.name / "report"
        return write_to(self.data, folder) | static_export.write(folder)

    def _texts(self) -> dict[str, pd.DataFrame]:
        """All frames, every cell as it is written."""
        trials = _as_text(self.folder / "trials.csv")
        constants = self.folder / "constants.json"
        if constants.is_file():  # earlier releases have every column
            read = TypeAdapter(_Constants).validate_json(constants.read_bytes())
            trials = _with_constants(trials, read)
        found = {"trials": trials}
        for name, columns in _EMPTY.items():
            path = self.folder / f"{name}.csv"
            text = _as_text(path) if path.is_file() else pd.DataFrame(columns=columns)
            if "arm" not in text:
                known = trials[["trial", *_OF_TRIAL]]
                if not set(text["trial"]) <= set(known["trial"]):
                    raise ValueError(f"{path.name} has trials that trials.csv does not have")
                text = text.merge(known, on="trial", validate="m:1")
            found[name] = text[columns]
        return found


def _typed_frame(text: pd.DataFrame) -> pd.DataFrame:
    typed = {c: text[c] if c in _TEXT else _typed(text[c]) for c in text}
    typed |= {c: pd.to_datetime(text[c], utc=True) for c in _TIMES if c in text}
    return pd.DataFrame(typed)


def _typed(column: "pd.Series[str]") -> Any:
    """Numbers as they were written, to the last bit, which not every reader of pandas gives."""
    given = [value for value in column if value]
    if set(given) <= {"True", "False"}:
        words = {"True": True, "False": False}
        return column.map(lambda value: words.get(value, math.nan)) if given else math.nan
    for number in (int, float):
        try:
            for value in given:
                number(value)
        except ValueError:
            continue
        if number is int and len(given) == len(column):
            return column.map(int)
        return column.map(lambda value: float(value) if value else math.nan)
    return column.map(lambda value: value or math.nan)


def _csv(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False, lineterminator="\n"))


def _json(tree: Any) -> str:
    return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"
